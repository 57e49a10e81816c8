"""diffusers' modules and torch.optim.AdamW, set up as the audited run was. Shared by audit.py."""

import hashlib
import math
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from diffusers import ControlNetModel, UNet2DConditionModel
from diffusers.optimization import get_constant_schedule_with_warmup

from audit_files import Unusable, same_bits

ARCHITECTURE = (
    "in_channels", "out_channels", "block_out_channels", "down_block_types", "up_block_types", "layers_per_block",
    "attention_head_dim", "cross_attention_dim", "norm_num_groups", "norm_eps", "act_fn", "flip_sin_to_cos",
    "freq_shift", "conditioning_channels", "conditioning_embedding_out_channels")


def load(module, folder, part, facts):
    error = None
    for variant in (None, "fp16"):
        try:
            loaded = module.from_pretrained(
                folder, subfolder=part, variant=variant, torch_dtype=torch.float32, use_safetensors=True,
                low_cpu_mem_usage=False)
            break
        except (OSError, ValueError, RuntimeError) as problem:
            error = error or problem
    else:
        raise Unusable(f"--weights {folder}: diffusers cannot load {part}/: {' '.join(str(error).split())}")
    for key in ARCHITECTURE:
        if key in facts and key in loaded.config:
            found = list(loaded.config[key]) if isinstance(loaded.config[key], tuple) else loaded.config[key]
            if found != facts[key]:
                raise Unusable(f"--weights {folder}: another model: {part}'s {key} is {found}, "
                               f"the run had {facts[key]}")
    for parameter in loaded.parameters():
        # Memory of their own: what is mapped from a file lies unaligned, and kernels round otherwise there.
        parameter.data = parameter.data.clone()
    return loaded


class Reference:
    """diffusers' modules with the folder's weights; the trainable ones are put in step by step."""

    def __init__(self, audit, folder):
        self.facts = audit.facts
        self.folder = folder
        if not os.path.isdir(os.path.join(folder, "unet")):
            raise Unusable(f"--weights {folder}: no unet/ in it; give the diffusers folder that the run was given")
        self.unet = load(UNet2DConditionModel, folder, "unet", self.facts["unet"])
        self.controlnet = None
        parts, self.in_folder = {"unet": self.unet}, {"unet"}
        if "controlnet" in self.facts:
            if os.path.isdir(os.path.join(folder, "controlnet")):
                self.controlnet = load(ControlNetModel, folder, "controlnet", self.facts["controlnet"])
                self.in_folder.add("controlnet")
            else:
                self.controlnet = ControlNetModel.from_config(self.facts["controlnet"])
            parts["controlnet"] = self.controlnet
        self.parameters = {f"{part}.{name}": parameter for part, module in parts.items()
                           for name, parameter in module.eval().requires_grad_(False).named_parameters()}
        self.digests = {}
        noise = self.facts["noise"]
        roots = torch.linspace(noise["linear_start"] ** 0.5, noise["linear_end"] ** 0.5, noise["timesteps"],
                               dtype=torch.float64)
        self.alphas_cumprod = torch.cumprod(1 - roots ** 2, 0)

    def check_weights(self, step, first):
        """Frozen weights, and in step 0 trainable ones too, must be those of the folder."""
        unknown = [name for name in self.parameters if name not in step.frozen and name not in step.adam_steps]
        if unknown:
            raise Unusable(f"step {step.number}: {unknown[0]} is in no rank's file, nor are {len(unknown) - 1} others")
        for name in (*step.frozen, *step.trainable):
            if name not in self.parameters:
                raise Unusable(f"step {step.number}: diffusers' modules have no {name}")
        changed = [name for name, digest in step.frozen.items() if self._digest(name) != digest]
        if step.number == 0:
            changed += [name for name in step.trainable if name.split(".")[0] in self.in_folder
                        and not same_bits(self.parameters[name].detach(), step.read("before", name))]
        if changed and first:
            raise Unusable(f"--weights {self.folder}: not the weights of this run: {changed[0]} and "
                           f"{len(changed) - 1} others differ")
        if changed:
            step.complaints.append(f"{changed[0]} and {len(changed) - 1} other frozen parameters have changed")

    def _digest(self, name):
        if name not in self.digests:
            self.digests[name] = hashlib.sha256(self.parameters[name].numpy().tobytes()).hexdigest()
        return self.digests[name]

    def start_from(self, step):
        """Weights before the step, and an optimizer with the moments before it."""
        adam = self.facts["optimizer"]
        trained = {}
        for name in step.trainable:
            before = step.read("before", name)
            if before.shape != self.parameters[name].shape:
                raise Unusable(f"step {step.number}: {name} {list(before.shape)}, diffusers has "
                               f"{list(self.parameters[name].shape)}")
            trained[name] = self.parameters[name].requires_grad_(True)
            trained[name].data.copy_(before)
            trained[name].grad = None
        optimizer = torch.optim.AdamW(
            list(trained.values()), lr=adam["learning_rate"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"],
            weight_decay=adam["weight_decay"])
        for name, parameter in trained.items():
            if step.adam_steps[name] > 0:
                optimizer.state[parameter] = {
                    "step": torch.tensor(float(step.adam_steps[name])),
                    "exp_avg": step.read("exp_avg", name), "exp_avg_sq": step.read("exp_avg_sq", name)}
        return trained, optimizer

    def learning_rate(self, step):
        """As diffusers' trainers have it, for a 0-based step."""
        adam = self.facts["optimizer"]
        any_optimizer = torch.optim.SGD([torch.zeros(1)], lr=adam["learning_rate"])
        schedule = get_constant_schedule_with_warmup(any_optimizer, adam["warmup_steps"])
        return adam["learning_rate"] * schedule.lr_lambdas[0](step)

    def forward_backward(self, batch):
        """Prediction and losses of all samples; gradients of their mean into the parameters."""
        predictions, losses, at = [], [], 0
        for size in self.facts["micro_batches"]:
            part = {name: tensor[at:at + size] for name, tensor in batch.items()}
            at += size
            prediction = self.predict(part)
            loss = (prediction - part["noise"]).square().mean((1, 2, 3))
            (loss.sum() / self.facts["batch"]).backward()
            predictions.append(prediction.detach())
            losses.append(loss.detach())
        return torch.cat(predictions), torch.cat(losses)

    def predict(self, part):
        alpha_bar = self.alphas_cumprod[part["timesteps"]].view(-1, 1, 1, 1)
        noisy = alpha_bar.sqrt().float() * part["latents"] + (1 - alpha_bar).sqrt().float() * part["noise"]
        arguments = (noisy, part["timesteps"], part["context"])
        if self.controlnet is None:
            return self.unet(*arguments).sample
        down, middle = self.controlnet(*arguments, controlnet_cond=part["hint"], return_dict=False)
        if self.facts["trainable"]["only_mid_control"]:
            # Without these diffusers adds the middle one nowhere; adding zero changes nothing.
            down = [torch.zeros_like(residual) for residual in down]
        return self.unet(*arguments, down_block_additional_residuals=down,
                         mid_block_additional_residual=middle).sample

    def clip_and_step(self, trained, optimizer, number):
        """Norm before clipping."""
        limit = self.facts["optimizer"]["max_grad_norm"]
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), limit if limit > 0 else math.inf).item()
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate(number)
        optimizer.step()
        return norm
