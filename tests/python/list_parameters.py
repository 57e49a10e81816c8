"""Prints every parameter of SD 1.5's networks as diffusers and transformers name it: "<part>.<name> <d0>,<d1>".

Nothing is allocated: the networks are made on the meta device.
"""

import torch
from diffusers import AutoencoderKL, ControlNetModel, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

DOWN = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)
UP = ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3


def networks():
    yield "unet", UNet2DConditionModel(
        cross_attention_dim=768, attention_head_dim=8, down_block_types=DOWN, up_block_types=UP
    )
    yield "controlnet", ControlNetModel(
        cross_attention_dim=768, attention_head_dim=8, down_block_types=DOWN
    )
    yield "vae", AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
    )
    yield "text_encoder", CLIPTextModel(
        CLIPTextConfig(
            vocab_size=49408,
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
        )
    )


if __name__ == "__main__":
    with torch.device("meta"):
        for part, network in networks():
            for name, tensor in network.state_dict().items():
                print(f"parameter {part}.{name} {','.join(map(str, tensor.shape))}")
