"""Both directions of weight folders, with diffusers and transformers on one side.

Loads FOLDER/controlnet and FOLDER/unet as users do, refuses missing and unexpected keys, dumps
their values; then saves tiny models in every layout we read below FOLDER/theirs, each with its
values beside it as raw numbers.
"""

import json
import os
import sys

import torch
from diffusers import AutoencoderKL, ControlNetModel, UNet2DConditionModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel


def dump(state, path):
    """A table of names and shapes, and the fp32 numbers behind each other in its order."""
    with open(path + ".txt", "w") as table, open(path + ".raw", "wb") as raw:
        for name in sorted(state):
            value = state[name].float().contiguous()
            table.write(" ".join([name, *map(str, value.shape)]) + "\n")
            raw.write(value.numpy().tobytes())


def randomize(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
            parameter.copy_(parameter.half().float())


def tiny_models():
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=2, norm_num_groups=8)
    vae = AutoencoderKL(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, layers_per_block=1, norm_num_groups=8)
    text = CLIPTextModel(CLIPTextConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, bos_token_id=98, eos_token_id=99, pad_token_id=99))
    controlnet = ControlNetModel.from_unet(unet)
    return {"unet": unet, "controlnet": controlnet, "vae": vae, "text_encoder": text}


def make_older(folder):
    """The names of folders that diffusers before 0.13 and transformers before 5 wrote."""
    path = f"{folder}/vae/diffusion_pytorch_model.safetensors"
    old = {}
    for name, value in load_file(path).items():
        for today, before in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"),
                              ("to_out.0", "proj_attn")):
            if f"attentions.0.{today}." in name:
                name = name.replace(today, before)
                if name.startswith("decoder") and value.ndim == 2:
                    value = value[:, :, None, None]
        old[name] = value.contiguous()
    save_file(old, path, {"format": "pt"})
    path = f"{folder}/text_encoder/model.safetensors"
    old = {"text_model." + name: value for name, value in load_file(path).items()}
    old["text_model.embeddings.position_ids"] = torch.arange(77)[None]
    save_file(old, path, {"format": "pt"})


def write(folder):
    torch.manual_seed(1)
    for part, model in tiny_models().items():
        randomize(model)
        dump(model.state_dict(), f"{folder}/{part}")
        model.save_pretrained(f"{folder}/plain/{part}")
        model.save_pretrained(f"{folder}/older/{part}")
        model.save_pretrained(f"{folder}/shards/{part}", max_shard_size="400KB")
        model.half().save_pretrained(f"{folder}/half/{part}", variant="fp16")
        shards = f"{folder}/half_shards/{part}"
        model.save_pretrained(shards, variant="fp16", max_shard_size="200KB")
        model.bfloat16().save_pretrained(f"{folder}/brain/{part}")
        dump(model.state_dict(), f"{folder}/brain_{part}")
    make_older(folder + "/older")


def check_config(model, path):
    """Ours must hold exactly the keys that diffusers writes for such a model."""
    model.save_pretrained(path + "_again")
    ours = json.load(open(path + "/config.json"))
    theirs = json.load(open(path + "_again/config.json"))
    ours.pop("_diffusers_version"), theirs.pop("_diffusers_version")
    theirs.pop("_name_or_path", None)
    assert ours == theirs, {k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)}


def check(folder):
    for part, kind in (("controlnet", ControlNetModel), ("unet", UNet2DConditionModel)):
        for variant in (None, "fp16"):
            path = f"{folder}/{part}" + ("_half" if variant else "")
            model, info = kind.from_pretrained(path, variant=variant, output_loading_info=True,
                                               low_cpu_mem_usage=False)
            for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
                assert not info.get(problem), (path, problem, info[problem])
            dump(model.state_dict(), path)
            check_config(model, path)
            name = "diffusion_pytorch_model" + (".fp16" if variant else "") + ".safetensors"
            with safe_open(os.path.join(path, name), "pt") as file:
                assert file.metadata() == {"format": "pt"}


if __name__ == "__main__":
    torch.set_num_threads(1)
    check(sys.argv[1])
    os.mkdir(sys.argv[1] + "/theirs")
    write(sys.argv[1] + "/theirs")
