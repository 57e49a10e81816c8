#!/usr/bin/env python3
"""Redoes the steps that `pipetrain --audit DIR` wrote with diffusers and torch.optim.AdamW and prints the differences.

    .venv/bin/python tools/audit.py DIR --weights FOLDER_OF_SD15
    .venv/bin/python tools/audit.py DIR --weights FOLDER_OF_SD15 --follow

Without --follow every step starts from the weights and moments that the run had. With it the first
audited step does, and the rest carries on with its own. Exit status: 0 all within the bounds,
1 something is not, 2 there is nothing to compare. docs/audit.md explains the lines.
"""

import argparse
import hashlib
import json
import math
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from diffusers import ControlNetModel, UNet2DConditionModel
from diffusers.optimization import get_constant_schedule_with_warmup
from diffusers.utils import logging

from audit_files import Audit, Unusable, same_bits

BOUNDS = {"prediction": 1e-5, "loss": 1e-5, "gradient": 1e-5, "norm": 1e-5, "update": 1e-3, "optimizer": 1e-3}
ARCHITECTURE = (
    "in_channels", "out_channels", "block_out_channels", "down_block_types", "up_block_types", "layers_per_block",
    "attention_head_dim", "cross_attention_dim", "norm_num_groups", "norm_eps", "act_fn", "flip_sin_to_cos",
    "freq_shift", "conditioning_channels", "conditioning_embedding_out_channels")


# A gradient below this part of the whole gradient's norm is held against that part: where a gradient is zero but for
# rounding (queries and keys that see one token), nothing is left to be relative to.
SMALLEST_GRADIENT = 1e-3


def distance(ours, theirs, floor=0.0):
    """L2 norm of the difference over that of `theirs`, or over `floor`; sequences of tensors count as one vector."""
    difference = math.hypot(*((a.double() - b.double()).norm().item() for a, b in zip(ours, theirs, strict=True)))
    size = math.hypot(*(b.double().norm().item() for b in theirs))
    return relative(difference, max(size, floor))


def relative(difference, size):
    return 0.0 if difference == 0 else difference / size if size > 0 else math.inf


def load_unet(folder, facts):
    if not os.path.isdir(os.path.join(folder, "unet")):
        raise Unusable(f"--weights {folder}: no unet/ in it; give the diffusers folder that the run was given")
    error = None
    for variant in (None, "fp16"):
        try:
            unet = UNet2DConditionModel.from_pretrained(
                folder, subfolder="unet", variant=variant, torch_dtype=torch.float32, use_safetensors=True,
                low_cpu_mem_usage=False)
            break
        except (OSError, ValueError, RuntimeError) as problem:
            error = error or problem
    else:
        raise Unusable(f"--weights {folder}: diffusers cannot load unet/: {' '.join(str(error).split())}")
    for key in ARCHITECTURE:
        if key in facts and key in unet.config:
            found = list(unet.config[key]) if isinstance(unet.config[key], tuple) else unet.config[key]
            if found != facts[key]:
                raise Unusable(f"--weights {folder}: another model: {key} is {found}, the run had {facts[key]}")
    return unet


class Reference:
    """diffusers' modules with the run's frozen weights; the trainable ones are put in step by step."""

    def __init__(self, audit, weights):
        self.facts = audit.facts
        self.unet = load_unet(weights, self.facts["unet"]).eval().requires_grad_(False)
        parts = {"unet": self.unet}
        self.controlnet = None
        if "controlnet" in self.facts:
            self.controlnet = ControlNetModel.from_config(self.facts["controlnet"]).eval().requires_grad_(False)
            parts["controlnet"] = self.controlnet
        self.parameters = {f"{part}.{name}": parameter
                           for part, module in parts.items() for name, parameter in module.named_parameters()}
        self.digests = {}
        noise = self.facts["noise"]
        roots = torch.linspace(noise["linear_start"] ** 0.5, noise["linear_end"] ** 0.5, noise["timesteps"],
                               dtype=torch.float64)
        self.alphas_cumprod = torch.cumprod(1 - roots ** 2, 0)

    def changed_frozen(self, step):
        """Names of frozen parameters whose values are not those that the run held."""
        unknown = [name for name in self.parameters if name not in step.frozen and not step.has("before", name)]
        if unknown:
            raise Unusable(f"step {step.number}: {unknown[0]} is in no rank's file, nor are {len(unknown) - 1} others")
        for name in step.frozen:
            if name not in self.parameters:
                raise Unusable(f"step {step.number}: diffusers' modules have no {name}")
            if name not in self.digests:
                self.digests[name] = hashlib.sha256(self.parameters[name].numpy().tobytes()).hexdigest()
        return [name for name, digest in step.frozen.items() if self.digests[name] != digest]

    def start_from(self, step):
        """Weights before the step, and an optimizer with the moments before it."""
        adam = self.facts["optimizer"]
        trained = {}
        for name in step.trainable:
            if name not in self.parameters:
                raise Unusable(f"step {step.number}: diffusers' modules have no {name}")
            before = step.read("before", name)
            if before.shape != self.parameters[name].shape:
                raise Unusable(f"step {step.number}: {name} {list(before.shape)}, diffusers has "
                               f"{list(self.parameters[name].shape)}")
            trained[name] = self.parameters[name].requires_grad_(True)
            trained[name].data.copy_(before)
        optimizer = torch.optim.AdamW(
            list(trained.values()), lr=adam["learning_rate"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"],
            weight_decay=adam["weight_decay"])
        for name, parameter in trained.items():
            if step.adam_steps.get(name, 0) > 0:
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


class Report:
    """Numbers beside their bounds; knows whether one is outside."""

    def __init__(self, step):
        self.numbers = {"step": step.number, "complaints": step.complaints}
        self.lines = []

    def compare(self, kind, difference, text):
        bound = BOUNDS[kind]
        self.numbers[kind] = difference
        if not difference <= bound:
            self.numbers["complaints"].append(f"{kind}: {difference:.2e} apart, bound {bound:.0e}")
        self.lines.append(f"  {text}  {difference:.1e} (bound {bound:.0e})")

    def pair(self, kind, ours, theirs):
        self.numbers[kind + "_values"] = [ours, theirs]
        self.compare(kind, relative(abs(ours - theirs), abs(theirs)), f"{kind:<10} {ours:.9g}, redone {theirs:.9g}")

    def text(self, title):
        return "\n".join([title, *self.lines, *(f"  WRONG: {line}" for line in self.numbers["complaints"])])


def title_of(facts, step):
    sizes = facts["micro_batches"]
    return (f"step {step.number}: {facts['batch']} samples as {len(sizes)} micro-batch(es) on {facts['ranks']} rank(s), "
            f"learning rate {step.facts['learning_rate']:.3g}")


def clipped(facts, step):
    limit = facts["optimizer"]["max_grad_norm"]
    return 0 < limit < step.facts["gradient_norm"]


def compare_losses_and_norm(report, reference, step, losses, norm):
    report.pair("loss", step.batch["losses"].double().mean().item(), losses.double().mean().item())
    report.pair("norm", step.facts["gradient_norm"], norm)
    report.numbers["clipped"] = clipped(reference.facts, step)
    rate = reference.learning_rate(step.number)
    if relative(abs(rate - step.facts["learning_rate"]), rate) > 1e-12:
        report.numbers["complaints"].append(f"learning rate {step.facts['learning_rate']}, {rate} expected")


def compare_gradients(report, step, gradients):
    apart = {}
    floor = SMALLEST_GRADIENT * math.hypot(*(g.double().norm().item() for g in gradients.values() if g is not None))
    for name, theirs in gradients.items():
        if (theirs is None) != (name in step.no_gradient):
            has, lacks = ("diffusers", "the run") if theirs is not None else ("the run", "diffusers")
            report.numbers["complaints"].append(f"{name}: {has} has a gradient, {lacks} has none")
        elif theirs is not None:
            apart[name] = distance([step.read("gradient", name)], [theirs], floor)
    worst = sorted(apart, key=apart.get, reverse=True)[:3]
    report.numbers["worst_gradients"] = {name: apart[name] for name in worst}
    within = sum(value <= BOUNDS["gradient"] for value in apart.values())
    nothing = f", {len(step.no_gradient)} None" if step.no_gradient else ""
    report.compare("gradient", apart[worst[0]] if worst else 0.0,
                   f"gradients  {within} of {len(apart)} parameters within the bound{nothing}; worst {worst[0]}"
                   if worst else "gradients  all None")


def compare_updates(report, kind, text, step, trained):
    ours, theirs = [], []
    for name, parameter in trained.items():
        before = step.read("before", name)
        ours.append(step.read("after", name).double() - before.double())
        theirs.append(parameter.detach().double() - before.double())
    report.compare(kind, distance(ours, theirs), text)


def compare_optimizer(report, reference, step):
    """torch's AdamW on the run's own gradients: each weight, in units of the learning rate."""
    trained, optimizer = reference.start_from(step)
    for name, parameter in trained.items():
        parameter.grad = None if name in step.no_gradient else step.read("gradient", name)
    reference.clip_and_step(trained, optimizer, step.number)
    rate, worst = reference.learning_rate(step.number), 0.0
    for name, parameter in trained.items():
        ours, theirs = step.read("after", name).double(), parameter.detach().double()
        # The last bits of the weight itself are not the optimizer's.
        beyond = ((ours - theirs).abs() - 2 ** -22 * theirs.abs()).max().item()
        if beyond > 0:
            worst = max(worst, beyond / rate if rate > 0 else math.inf)
    report.compare("optimizer", worst, "optimizer  AdamW on the run's own gradients, worst weight ÷ learning rate")


def carried_over(step, last):
    """Weights must be what the audited step before left."""
    if last is None or last.number + 1 != step.number:
        return
    for name in step.trainable:
        if not same_bits(step.read("before", name), last.read("after", name)):
            step.complaints.append(f"{name} before step {step.number} is not what step {last.number} left")


def check_frozen(reference, step, first, weights):
    changed = reference.changed_frozen(step)
    if changed and first:
        raise Unusable(f"--weights {weights}: not the weights of this run: {changed[0]} and "
                       f"{len(changed) - 1} other frozen parameters differ")
    if changed:
        step.complaints.append(f"{changed[0]} and {len(changed) - 1} other frozen parameters have changed")


def redo(audit, reference, weights):
    """Each step from the run's own weights and moments."""
    last = None
    for step in audit.steps():
        check_frozen(reference, step, last is None, weights)
        carried_over(step, last)
        report = Report(step)
        trained, optimizer = reference.start_from(step)
        optimizer.zero_grad()
        prediction, losses = reference.forward_backward(step.batch)
        gradients = {name: None if p.grad is None else p.grad.clone() for name, p in trained.items()}
        norm = reference.clip_and_step(trained, optimizer, step.number)
        report.compare("prediction", distance([step.batch["prediction"]], [prediction]), "prediction")
        compare_losses_and_norm(report, reference, step, losses, norm)
        compare_gradients(report, step, gradients)
        compare_updates(report, "update", "update     of all trained parameters together", step, trained)
        compare_optimizer(report, reference, step)
        last = step
        yield report, report.text(title_of(reference.facts, step))


def follow(audit, reference, weights):
    """All steps from the weights and moments before the first one."""
    numbers = audit.numbers
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Unusable(f"--follow needs steps in a row, {numbers} were chosen; "
                       f"audit with --audit-steps {numbers[0]}-{numbers[-1]}")
    first = None
    for step in audit.steps():
        check_frozen(reference, step, first is None, weights)
        if first is None:
            first = step
            trained, optimizer = reference.start_from(step)
        report = Report(step)
        optimizer.zero_grad()
        _, losses = reference.forward_backward(step.batch)
        norm = reference.clip_and_step(trained, optimizer, step.number)
        compare_losses_and_norm(report, reference, step, losses, norm)
        if step.number == numbers[-1]:
            ours = [step.read("after", n).double() - first.read("before", n).double() for n in trained]
            theirs = [p.detach().double() - first.read("before", n).double() for n, p in trained.items()]
            report.compare("update", distance(ours, theirs), f"update     of all {len(numbers)} steps together")
        yield report, report.text(title_of(reference.facts, step))


def step_numbers(text):
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,1,19") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("audit", metavar="DIR", help="folder of pipetrain --audit")
    parser.add_argument("--weights", required=True, metavar="DIR", help="diffusers folder that the run was given")
    parser.add_argument("--steps", type=step_numbers, help="some of the audited steps only, such as 0,1,19")
    parser.add_argument("--follow", action="store_true", help="carry own weights and moments from step to step")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    reports = []
    try:
        audit = Audit(options.audit, options.steps)
        reference = Reference(audit, options.weights)
        for report, text in (follow if options.follow else redo)(audit, reference, options.weights):
            reports.append(report.numbers)
            if not options.json:
                print(text, flush=True)
    except Unusable as reason:
        print(f"audit: {reason}", file=sys.stderr)
        return 2
    wrong = sum(bool(numbers["complaints"]) for numbers in reports)
    if options.json:
        print(json.dumps({"within_bounds": wrong == 0, "bounds": BOUNDS, "steps": reports}))
    else:
        print("verdict: " + (f"all {len(reports)} step(s) are what diffusers and torch.optim.AdamW compute"
                             if wrong == 0 else f"{wrong} of {len(reports)} step(s) differ"))
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
