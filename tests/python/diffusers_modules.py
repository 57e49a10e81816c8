"""The networks of a model file (configs/models/*.yaml) as modules of diffusers and transformers.

Also for benchmarks/, which train the same modules. They come as their libraries initialise them.
"""

import yaml
from diffusers import AutoencoderKL, ControlNetModel, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel


def read_model_file(path):
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def encoder_arguments(config):
    """What UNet and ControlNet have in common."""
    unet = config["unet"]
    return dict(
        in_channels=unet["in_channels"], block_out_channels=unet["block_out_channels"],
        layers_per_block=unet["layers_per_block"], norm_num_groups=unet["norm_num_groups"],
        attention_head_dim=unet["num_heads"], cross_attention_dim=unet["cross_attention_dim"],
        down_block_types=["CrossAttnDownBlock2D" if attention else "DownBlock2D"
                          for attention in unet["down_attention"]])


def build_unet(config):
    unet = config["unet"]
    return UNet2DConditionModel(
        out_channels=unet["out_channels"],
        up_block_types=["CrossAttnUpBlock2D" if attention else "UpBlock2D"
                        for attention in reversed(unet["down_attention"])],
        **encoder_arguments(config))


def build_controlnet(config):
    control = config["controlnet"]
    return ControlNetModel(
        conditioning_channels=control["conditioning_channels"],
        conditioning_embedding_out_channels=control["conditioning_embedding_out_channels"],
        **encoder_arguments(config))


def build_vae(config):
    vae = config["vae"]
    return AutoencoderKL(
        in_channels=vae["in_channels"], out_channels=vae["in_channels"],
        latent_channels=vae["latent_channels"], block_out_channels=vae["block_out_channels"],
        down_block_types=["DownEncoderBlock2D"] * len(vae["block_out_channels"]),
        up_block_types=["UpDecoderBlock2D"] * len(vae["block_out_channels"]),
        layers_per_block=vae["layers_per_block"], norm_num_groups=vae["norm_num_groups"])


def build_text_encoder(config):
    text = config["text_encoder"]
    return CLIPTextModel(CLIPTextConfig(
        vocab_size=text["vocab_size"], hidden_size=text["hidden_size"],
        intermediate_size=text["intermediate_size"], num_hidden_layers=text["layers"],
        num_attention_heads=text["heads"], max_position_embeddings=text["max_length"],
        hidden_act="quick_gelu", bos_token_id=49406, eos_token_id=49407, pad_token_id=49407))
