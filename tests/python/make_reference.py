"""Writes what diffusers and transformers compute, for tests/models_torch to compare with.

    make_reference.py MODEL.yaml OUT_DIR

The model of MODEL.yaml at 128 x 192 pixels on sharp random weights. Files in OUT_DIR:
weights.safetensors (parts unet, controlnet, vae, text_encoder), inputs.safetensors,
outputs.safetensors, gradients_<choice>.safetensors (a parameter without a gradient is left out) for
each choice of what is trained.
"""

import math
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from diffusers_modules import (build_controlnet, build_text_encoder, build_unet, build_vae,
                               read_model_file)
from safetensors.torch import save_file

WIDTH, HEIGHT, BATCH = 128, 192, 2

# How much a layer scales its input, and the deviation of its bias, by the end of its name. Nothing
# is zero. Branches write small values (variance about 1e-3) into what a norm reads next, so that a
# wrong eps shows; queries and keys are large enough that attention is not flat.
STREAM_BIAS = 0.01
SCALES = [
    ("time_embedding.linear_1", 1.5, 0.5),
    ("time_embedding.linear_2", 1.5, 0.5),
    ("time_emb_proj", 0.03, STREAM_BIAS),
    ("controlnet_cond_embedding.conv_out", 0.05, STREAM_BIAS),
    ("controlnet_cond_embedding.conv_in", 1.5, 0.3),
    ("controlnet_cond_embedding.", 1.5, 0.3),
    ("controlnet_down_blocks.", 1.0, STREAM_BIAS),
    ("controlnet_mid_block", 1.0, STREAM_BIAS),
    ("conv_in", 0.03, STREAM_BIAS),
    ("conv_out", 1.0, 0.3),
    ("quant_conv", 1.0, 0.3),
    ("conv1", 0.05, STREAM_BIAS),
    ("conv2", 0.03, STREAM_BIAS),
    ("conv_shortcut", 1.0, STREAM_BIAS),
    ("samplers.0.conv", 1.0, STREAM_BIAS),
    ("proj_in", 0.03, STREAM_BIAS),
    ("proj_out", 0.3, STREAM_BIAS),
    ("to_q", 1.4, 0.3),
    ("to_k", 1.4, 0.3),
    ("to_v", 1.0, 0.3),
    ("to_out.0", 0.05, STREAM_BIAS),
    ("ff.net.0.proj", 1.5, 0.3),
    ("ff.net.2", 0.05, STREAM_BIAS),
    ("q_proj", 1.4, 0.3),
    ("k_proj", 1.4, 0.3),
    ("v_proj", 1.0, 0.3),
    ("out_proj", 0.05, STREAM_BIAS),
    ("fc1", 1.5, 0.3),
    ("fc2", 0.05, STREAM_BIAS),
]


def scale_of(layer):
    for part, gain, bias in SCALES:
        if layer.endswith(part) or (part.endswith(".") and part in layer):
            return gain, bias
    raise SystemExit(f"no scale for layer {layer}")


def sharpen(model, generator):
    """Draws every parameter anew."""
    def draw(parameter, std, mean=0.0):
        with torch.no_grad():
            parameter.copy_(mean + std * torch.randn(parameter.shape, generator=generator))

    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            gain, bias = scale_of(name)
            draw(module.weight, gain / math.sqrt(module.weight[0].numel()))
            if module.bias is not None:
                draw(module.bias, bias)
        elif isinstance(module, (torch.nn.GroupNorm, torch.nn.LayerNorm)):
            draw(module.weight, 0.2, mean=1.0)
            draw(module.bias, 0.2)
        elif isinstance(module, torch.nn.Embedding):
            draw(module.weight, 0.03)
    return model.eval().requires_grad_(False)


def build(config, generator):
    """All parts on sharp random weights, drawn in this order."""
    models = {"unet": build_unet(config), "controlnet": build_controlnet(config),
              "vae": build_vae(config), "text_encoder": build_text_encoder(config)}
    return {part: sharpen(model, generator) for part, model in models.items()}


def draw_inputs(config, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator)

    ids = torch.full((BATCH, config["text_encoder"]["max_length"]), 49407)
    ids[:, 0] = 49406
    ids[0, 1:20] = torch.randint(0, 49406, (19,), generator=generator)
    ids[1, 1:76] = torch.randint(0, 49406, (75,), generator=generator)
    latent = (BATCH, config["vae"]["latent_channels"], HEIGHT // 8, WIDTH // 8)
    return {
        "noisy_latents": normal(*latent), "noise": normal(*latent), "latents": normal(*latent),
        "timesteps": torch.tensor([17, 803]),
        "context": normal(BATCH, config["text_encoder"]["max_length"],
                          config["unet"]["cross_attention_dim"]),
        "hint": torch.rand((BATCH, 3, HEIGHT, WIDTH), generator=generator),
        "image": 2 * torch.rand((BATCH, 3, HEIGHT, WIDTH), generator=generator) - 1,
        "ids": ids,
    }


def train_only(models, choice):
    """Leaves a gradient to what `choice` trains."""
    unet, controlnet = models["unet"], models["controlnet"]
    unet.requires_grad_(choice == "unet")
    controlnet.requires_grad_(choice != "unet")
    if choice == "unlocked":
        for module in (unet.up_blocks, unet.conv_norm_out, unet.conv_out):
            module.requires_grad_(True)


def predict(models, inputs, choice):
    """Prediction and ControlNet's 13 residuals."""
    unet, controlnet = models["unet"], models["controlnet"]
    arguments = (inputs["noisy_latents"], inputs["timesteps"], inputs["context"])
    if choice == "unet":
        return unet(*arguments).sample, []
    down, mid = controlnet(*arguments, controlnet_cond=inputs["hint"], return_dict=False)
    # Without down residuals diffusers adds the middle one nowhere; adding zero changes nothing.
    used = [torch.zeros_like(d) for d in down] if choice == "only_mid_control" else down
    prediction = unet(*arguments, down_block_additional_residuals=used,
                      mid_block_additional_residual=mid).sample
    return prediction, [*down, mid]


def take_gradients(models):
    """By name; a parameter without a gradient is left out."""
    gradients = {}
    for part in ("unet", "controlnet"):
        for name, parameter in models[part].named_parameters():
            if parameter.grad is not None:
                gradients[f"{part}.{name}"] = parameter.grad
                parameter.grad = None
    return gradients


def run(models, inputs, choice):
    """Prediction, residuals, gradients of one choice of what is trained."""
    train_only(models, choice)
    prediction, residuals = predict(models, inputs, choice)
    torch.nn.functional.mse_loss(prediction, inputs["noise"]).backward()
    return prediction.detach(), [r.detach() for r in residuals], take_gradients(models)


def main(model_file, out):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20240607)
    config = read_model_file(model_file)
    models = build(config, generator)
    inputs = draw_inputs(config, generator)

    def write(name, tensors):
        save_file({key: value.contiguous() for key, value in tensors.items()},
                  os.path.join(out, name + ".safetensors"))

    write("weights", {f"{part}.{name}": parameter
                      for part, model in models.items()
                      for name, parameter in model.named_parameters()})
    write("inputs", inputs)
    outputs = {}
    for choice in ("controlnet", "unlocked", "only_mid_control", "unet"):
        outputs[f"prediction.{choice}"], residuals, gradients = run(models, inputs, choice)
        if choice == "controlnet":
            outputs |= {f"residual.{i}": residual for i, residual in enumerate(residuals)}
        write(f"gradients_{choice}", gradients)
    with torch.no_grad():
        posterior = models["vae"].encode(inputs["image"]).latent_dist
        hidden = models["text_encoder"](inputs["ids"]).last_hidden_state
        outputs |= {"vae.mean": posterior.mean, "vae.std": posterior.std,
                    "vae.decoded": models["vae"].decode(inputs["latents"]).sample,
                    "text_encoder.last_hidden_state": hidden}
    write("outputs", outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
