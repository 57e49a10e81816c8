"""What diffusers computes from weights and inputs that a test wrote.

    diffusers_gradients.py FOLDER MICRO_BATCH CHOICE...

Reads FOLDER/unet, FOLDER/controlnet (diffusers folders) and FOLDER/inputs.safetensors
(noisy_latents, timesteps, context, hint, noise; the whole batch). Writes, for each choice of what
is trained, FOLDER/<choice>.safetensors: `prediction` and `residual.<i>` of the first micro-batch,
and `gradient.<parameter>` of one backward call on the loss of all micro-batches together: the mean
over the batch, whatever the sizes of the micro-batches. A parameter without a gradient is left out.
"""

import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from diffusers import ControlNetModel, UNet2DConditionModel
from make_reference import predict, take_gradients, train_only
from safetensors.torch import load_file, save_file


def micro_batches(inputs, size):
    batch = inputs["noise"].shape[0]
    for first in range(0, batch, size):
        yield {name: tensor[first:first + size] for name, tensor in inputs.items()}


def main(folder, micro_batch, *choices):
    torch.set_num_threads(1)
    models = {part: model.from_pretrained(os.path.join(folder, part)).eval()
              for part, model in (("unet", UNet2DConditionModel), ("controlnet", ControlNetModel))}
    inputs = load_file(os.path.join(folder, "inputs.safetensors"))
    batch = inputs["noise"].shape[0]
    for choice in choices:
        train_only(models, choice)
        loss, written = 0.0, {}
        for part in micro_batches(inputs, int(micro_batch)):
            prediction, residuals = predict(models, part, choice)
            if not written:
                written = {"prediction": prediction.detach()}
                written |= {f"residual.{i}": r.detach() for i, r in enumerate(residuals)}
            error = torch.nn.functional.mse_loss(prediction, part["noise"])
            loss = loss + error * len(prediction) / batch
        loss.backward()
        written |= {f"gradient.{name}": g for name, g in take_gradients(models).items()}
        save_file({name: tensor.contiguous() for name, tensor in written.items()},
                  os.path.join(folder, choice + ".safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
