#!/usr/bin/env python3
"""Redoes the steps that `pipetrain --audit DIR` wrote with diffusers and torch.optim.AdamW and prints the differences.

    .venv/bin/python tools/audit.py DIR --weights FOLDER_OF_SD15
    .venv/bin/python tools/audit.py DIR --weights FOLDER_OF_SD15 --follow

Without --follow every step starts from the weights and moments that the run had. With it the first
audited step does, and the rest carries on with its own. Exit status: 0 all within the bounds,
1 something is not, 2 there is nothing to compare. docs/audit.md explains the lines.
"""

import argparse
import json
import math
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from diffusers.utils import logging

from audit_files import Audit, Unusable, same_bits
from audit_reference import Reference

BOUNDS = {"prediction": 1e-5, "loss": 1e-5, "norm": 1e-5, "gradient": 1e-5, "moments": 3e-5, "update": 1e-3,
          "optimizer": 1e-3}

# A gradient below this part of the whole gradient's norm is held against that part: where a gradient is zero but for
# rounding (queries and keys that see one token), nothing is left to be relative to.
SMALLEST_GRADIENT = 1e-3


def distance(ours, theirs, floor=0.0):
    """L2 norm of the difference over that of `theirs`, or over `floor`; sequences of tensors count as one vector."""
    difference = size_of(a.double() - b.double() for a, b in zip(ours, theirs, strict=True))
    return relative(difference, max(size_of(theirs), floor))


def size_of(tensors):
    return math.hypot(*(tensor.double().norm().item() for tensor in tensors))


def relative(difference, size):
    """Infinite where there is nothing to be relative to, or a NaN."""
    if difference == 0:
        return 0.0
    return difference / size if size > 0 and math.isfinite(difference) else math.inf


class Report:
    """Numbers beside their bounds; knows whether one is outside."""

    def __init__(self, step):
        self.numbers = {"step": step.number, "complaints": step.complaints}
        self.lines = []

    def complain(self, line):
        self.numbers["complaints"].append(line)

    def compare(self, kind, difference, text):
        bound = BOUNDS[kind]
        self.numbers[kind] = difference
        if not difference <= bound:
            self.complain(f"{kind}: {difference:.2e} apart, bound {bound:.0e}")
        self.lines.append(f"  {text}  {difference:.1e} (bound {bound:.0e})")

    def pair(self, kind, ours, theirs):
        self.numbers[kind + "_values"] = [ours, theirs]
        self.compare(kind, relative(abs(ours - theirs), abs(theirs)), f"{kind:<10} {ours:.9g}, redone {theirs:.9g}")

    def each(self, kind, apart, text):
        """Differences by name; the worst counts. The number of those within the bound goes into `text`."""
        worst = sorted(apart, key=apart.get, reverse=True)[:3]
        self.numbers[f"worst_{kind}"] = {name: apart[name] for name in worst}
        within = sum(value <= BOUNDS[kind] for value in apart.values())
        self.compare(kind, apart[worst[0]] if worst else 0.0,
                     text.format(within) + (f"; worst {worst[0]}" if worst else ""))

    def text(self, title):
        return "\n".join([title, *self.lines, *(f"  WRONG: {line}" for line in self.numbers["complaints"])])


def title_of(facts, step):
    sizes = facts["micro_batches"]
    return (f"step {step.number}: {facts['batch']} samples as {len(sizes)} micro-batch(es) on {facts['ranks']} rank(s)"
            f", learning rate {step.facts['learning_rate']:.3g}")


def clipped(facts, step):
    limit = facts["optimizer"]["max_grad_norm"]
    return 0 < limit < step.facts["gradient_norm"]


def compare_losses_and_norm(report, reference, step, losses, norm):
    report.pair("loss", step.batch["losses"].double().mean().item(), losses.double().mean().item())
    report.pair("norm", step.facts["gradient_norm"], norm)
    report.numbers["clipped"] = clipped(reference.facts, step)
    rate = reference.learning_rate(step.number)
    if relative(abs(rate - step.facts["learning_rate"]), rate) > 1e-12:
        report.complain(f"learning rate {step.facts['learning_rate']}, {rate} expected")


def find_one_sided(report, step, gradients):
    for name, theirs in gradients.items():
        if (theirs is None) != (name in step.no_gradient):
            has, lacks = ("diffusers", "the run") if theirs is not None else ("the run", "diffusers")
            report.complain(f"{name}: {has} has a gradient, {lacks} has none")


def compare_gradients(report, step, gradients):
    find_one_sided(report, step, gradients)
    floor = SMALLEST_GRADIENT * size_of(gradient for gradient in gradients.values() if gradient is not None)
    apart = {name: distance([step.read("gradient", name)], [theirs], floor)
             for name, theirs in gradients.items() if theirs is not None and name not in step.no_gradient}
    nothing = f", {len(step.no_gradient)} None" if step.no_gradient else ""
    report.each("gradient", apart, f"gradients  {{}} of {len(apart)} parameters within the bound{nothing}")


def compare_updates(report, text, first, last, trained):
    """What became of the weights from before `first` to after `last`."""
    ours, theirs = [], []
    for name, parameter in trained.items():
        before = first.read("before", name).double()
        ours.append(last.read("after", name).double() - before)
        theirs.append(parameter.detach().double() - before)
    report.compare("update", distance(ours, theirs), text)


def compare_optimizer(report, reference, step):
    """torch's AdamW on the run's own gradients: each weight, in units of the learning rate. Returns its moments."""
    trained, optimizer = reference.start_from(step)
    for name, parameter in trained.items():
        parameter.grad = None if name in step.no_gradient else step.read("gradient", name)
    reference.clip_and_step(trained, optimizer, step.number)
    rate, worst = reference.learning_rate(step.number), 0.0
    for name, parameter in trained.items():
        ours, theirs = step.read("after", name).double(), parameter.detach().double()
        # Both sides round the weight twice, when it decays and when it moves: four times half its last bit.
        beyond = ((ours - theirs).abs() - 2 ** -22 * theirs.abs()).max().item()
        if not beyond <= 0:
            worst = max(worst, relative(beyond, rate))
    report.compare("optimizer", worst, "optimizer  AdamW on the run's own gradients, worst weight ÷ learning rate")
    return {name: optimizer.state[parameter] for name, parameter in trained.items() if parameter in optimizer.state}


def count_adam_steps(report, step):
    """Adam has moved whatever has a gradient in each step so far, and nothing else."""
    for name in step.trainable:
        expected = 0 if name in step.no_gradient else step.number
        if step.adam_steps[name] != expected:
            report.complain(f"{name}: Adam has made {step.adam_steps[name]} steps, {expected} expected")


def carried_over(report, step, last, moments):
    """Weights and moments must be what the step before left: same bits, and what AdamW made of its gradients."""
    apart = {"exp_avg": {}, "exp_avg_sq": {}}
    for name in step.trainable:
        if not same_bits(step.read("before", name), last.read("after", name)):
            report.complain(f"{name} before step {step.number} is not what step {last.number} left")
    for power, kind in enumerate(apart, 1):
        floor = SMALLEST_GRADIENT ** power * size_of(state[kind] for state in moments.values())
        for name, state in moments.items():
            ours = step.read(kind, name) if step.adam_steps[name] > 0 else torch.zeros_like(state[kind])
            apart[kind][f"{kind}.{name}"] = distance([ours], [state[kind]], floor)
    count = sum(map(len, apart.values()))
    report.each("moments", apart["exp_avg"] | apart["exp_avg_sq"],
                f"moments    {{}} of {count} are what step {last.number} left")


def redo(audit, reference):
    """Each step from the run's own weights and moments."""
    last, moments = None, None
    for step in audit.steps():
        reference.check_weights(step, last is None)
        report = Report(step)
        count_adam_steps(report, step)
        if last is not None and last.number + 1 == step.number:
            carried_over(report, step, last, moments)
        moments = None  # before others take their place in memory
        redo_gradients(report, reference, step)
        moments = compare_optimizer(report, reference, step)
        last = step
        yield report, report.text(title_of(reference.facts, step))


def redo_gradients(report, reference, step):
    trained, optimizer = reference.start_from(step)
    prediction, losses = reference.forward_backward(step.batch)
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in trained.items()}
    norm = reference.clip_and_step(trained, optimizer, step.number)
    report.compare("prediction", distance([step.batch["prediction"]], [prediction]), "prediction")
    compare_losses_and_norm(report, reference, step, losses, norm)
    compare_gradients(report, step, gradients)
    compare_updates(report, "update     of all trained parameters together", step, step, trained)


def follow(audit, reference):
    """All steps from the weights and moments before the first one."""
    numbers = audit.numbers
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Unusable(f"--follow needs steps in a row, {numbers} were chosen; "
                       f"audit with --audit-steps {numbers[0]}-{numbers[-1]}")
    first = None
    for step in audit.steps():
        reference.check_weights(step, first is None)
        if first is None:
            first = step
            trained, optimizer = reference.start_from(step)
        report = Report(step)
        count_adam_steps(report, step)
        optimizer.zero_grad()
        _, losses = reference.forward_backward(step.batch)
        find_one_sided(report, step, {name: parameter.grad for name, parameter in trained.items()})
        norm = reference.clip_and_step(trained, optimizer, step.number)
        compare_losses_and_norm(report, reference, step, losses, norm)
        if step.number == numbers[-1]:
            compare_updates(report, f"update     of all {len(numbers)} steps together", first, step, trained)
        yield report, report.text(title_of(reference.facts, step))


def thread_count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1024")
    return int(text)


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
    parser.add_argument("--threads", type=thread_count, help="threads of torch")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    reports = []
    try:
        audit = Audit(options.audit, options.steps)
        for report, text in (follow if options.follow else redo)(audit, Reference(audit, options.weights)):
            reports.append(report.numbers)
            if not options.json:
                print(text, flush=True)
    except Unusable as reason:
        print(f"audit: {reason}", file=sys.stderr)
        return 2
    except Exception as problem:  # a file that nobody thought of must not look like a wrong run, which is 1
        print(f"audit: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
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
