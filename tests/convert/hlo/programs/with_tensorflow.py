"""Compile programs with TensorFlow and XLA for the CPU; write NAME.hlo to the folder given."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

BATCH, WIDTH, HIDDEN, ROUNDS, WORKERS = 32, 64, 256, 5, 4
up, down = tf.Variable(tf.ones((WIDTH, HIDDEN))), tf.Variable(tf.ones((HIDDEN, WIDTH)))
kernel = tf.Variable(tf.ones((3, 3, 8, 16)))
x, y, image = tf.ones((BATCH, WIDTH)), tf.ones((BATCH, WIDTH)), tf.ones((4, 16, 16, 8))


def gradients(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(x @ up) @ down - y) ** 2)
    return loss, tape.gradient(loss, [up, down])


@tf.function(jit_compile=True)
def step(x, y):
    loss, grads = gradients(x, y)
    up.assign_sub(0.1 * grads[0])
    down.assign_sub(0.1 * grads[1])
    return loss


@tf.function(jit_compile=True)
def data_parallel(x, y):
    loss, grads = gradients(x, y)
    for key, (weight, grad) in enumerate(zip((up, down), grads, strict=True)):
        total = tf.raw_ops.CollectiveReduceV2(
            input=grad, group_size=WORKERS, group_key=1, instance_key=key, merge_op="Add", final_op="Id",
            ordering_token=[],
        )  # fmt: skip
        weight.assign_sub(0.1 * total)
    return loss


@tf.function(jit_compile=True)
def loop(x):
    for _ in tf.range(ROUNDS):
        x = tf.tanh(x @ up @ down)
    return x


@tf.function(jit_compile=True)
def convolution(image):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.conv2d(image, kernel, 2, "SAME") ** 2)
    return tape.gradient(loss, kernel)


PROGRAMS = {
    "step": (step, x, y),
    "data_parallel": (data_parallel, x, y),
    "loop": (loop, x),
    "convolution": (convolution, image),
}


def main(folder: Path) -> None:
    for name, (function, *arguments) in PROGRAMS.items():
        text = function.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
        (folder / f"{name}.hlo").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
