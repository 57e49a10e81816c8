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
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python"))
import diffusers
import torch
from diffusers_modules import build_controlnet, build_unet, read_model_file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name in ("width", "height", "batch", "micro-batch", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    config = read_model_file(options.model)
    unet = build_unet(config).train().requires_grad_(False)
    controlnet = build_controlnet(config).train()
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
