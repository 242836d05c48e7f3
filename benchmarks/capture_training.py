"""A small training loop that captures itself, for trying traceread.capture on this machine; its model is far too small to learn from.

    python benchmarks/capture_training.py run/                                       one process
    torchrun --standalone --nproc-per-node 2 benchmarks/capture_training.py run/     two, which exchange gradients
    python benchmarks/capture_training.py run/ --backend nsys                        prints the nsys command to start it with

Needs torch; uses a GPU where there is one (NCCL), else the CPU (gloo). Writes traces, run.json and the step log into the directory.
"""

import argparse
import logging
import os

import torch
import torch.distributed as dist

from traceread import capture

WIDTH, BATCH = 512, 64


class Noise(torch.utils.data.Dataset):
    """Samples that take a while to make, so that there is something to wait for."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.full((WIDTH,), float(index % 7)).sin()


def train(options):
    joined = "WORLD_SIZE" in os.environ
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if joined:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    if joined:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(Noise(BATCH * options.steps), BATCH, num_workers=options.workers)
    described = {"job": "capture_training", "model": {"parameters": parameters, "precision": "fp32"}}
    window = {"wait": options.wait, "warmup": 2, "steps": options.record, "backend": options.backend}
    with (
        capture.StepTimer(options.directory, interval=5, **described) as timer,
        capture.profile(options.directory, **window, **described) as p,
    ):
        if options.backend == "nsys" and p.rank.rank == 0:
            print(p.command, flush=True)
        for step, batch in enumerate(timer.data(loader)):
            with capture.phase("forward"):
                loss = model(batch.to(device)).square().mean()
            with capture.phase("backward"):
                loss.backward()
            with capture.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            timer.step(tokens=BATCH, loss=loss, batch_ids=[step])
            p.step()
        with timer.evaluation() as result:
            result["loss"] = loss.item()
    if joined:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--backend", choices=("torch", "nsys"), default="torch")
    parser.add_argument("--steps", type=int, default=40, help="of the training (default 40)")
    parser.add_argument("--wait", type=int, default=10, help="before the profiler (default 10)")
    parser.add_argument("--record", type=int, default=5, help="recorded (default 5)")
    parser.add_argument("--workers", type=int, default=2, help="of the data loader (default 2)")
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
