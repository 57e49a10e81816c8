"""Trains ControlNet with diffusers' modules in one process and prints what each step took.

    diffusers_step.py MODEL.yaml --width W --height H --batch B --micro-batch M --threads T --steps S

The same job as pipetrain's: frozen UNet, micro-batches accumulated, gradients clipped, AdamW. What a
careful user does is done: frozen parameters require no gradient, gradients are set to None, AdamW is
torch's fastest on this device. Samples are random tensors: encoding is not part of the measure.
Prints one JSON object: seconds and CPU seconds of each step, peak resident MiB.
"""

import argparse
import json
import os
import resource
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

import diffusers
import torch
import yaml
from diffusers import ControlNetModel, UNet2DConditionModel


def build(config):
    unet, control = config["unet"], config["controlnet"]
    channels, attention = unet["block_out_channels"], unet["down_attention"]
    common = dict(
        in_channels=unet["in_channels"], block_out_channels=channels,
        layers_per_block=unet["layers_per_block"], norm_num_groups=unet["norm_num_groups"],
        attention_head_dim=unet["num_heads"], cross_attention_dim=unet["cross_attention_dim"],
        down_block_types=["CrossAttnDownBlock2D" if a else "DownBlock2D" for a in attention])
    model = UNet2DConditionModel(
        out_channels=unet["out_channels"],
        up_block_types=["CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attention)],
        **common)
    controlnet = ControlNetModel(
        conditioning_channels=control["conditioning_channels"],
        conditioning_embedding_out_channels=control["conditioning_embedding_out_channels"],
        **common)
    return model.train().requires_grad_(False), controlnet.train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name in ("width", "height", "batch", "micro-batch", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    with open(options.model, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    unet, controlnet = build(config)
    with torch.no_grad():  # zero-initialised layers would make zero gradients
        for module in [*controlnet.controlnet_down_blocks, controlnet.controlnet_mid_block,
                       controlnet.controlnet_cond_embedding.conv_out]:
            module.weight.normal_(std=0.02)
    trained = list(controlnet.parameters())
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=1e-2, fused=True)

    size = (config["unet"]["in_channels"], options.height // 8, options.width // 8)
    context = torch.randn(options.batch, 77, config["unet"]["cross_attention_dim"])
    hint = torch.rand(options.batch, 3, options.height, options.width)
    steps = []
    for _ in range(options.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        noise, latents = torch.randn(options.batch, *size), torch.randn(options.batch, *size)
        timesteps = torch.randint(0, 1000, (options.batch,))
        for first in range(0, options.batch, options.micro_batch):
            part = slice(first, first + options.micro_batch)
            noisy = latents[part] + noise[part]
            down, middle = controlnet(noisy, timesteps[part], context[part],
                                      controlnet_cond=hint[part], return_dict=False)
            prediction = unet(noisy, timesteps[part], context[part],
                              down_block_additional_residuals=down,
                              mid_block_additional_residual=middle).sample
            loss = torch.nn.functional.mse_loss(prediction, noise[part])
            (loss * (len(noisy) / options.batch)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append({"seconds": time.perf_counter() - start,
                      "cpu_seconds": time.process_time() - cpu_start})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"versions": f"diffusers {diffusers.__version__}, torch {torch.__version__}",
               "steps": steps, "peak_rss_mib": peak}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
