#!/usr/bin/env bash
# Usage: ray-environment.sh VENV RAY_VENV
# Makes the environment of the tests of Ray and DeepSpeed on top of the development environment VENV: the two, Spark, which
# launches DeepSpeed, and what they ask for lie in RAY_VENV, all else is taken from VENV, this package included.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/layers.sh

venv=${1:?usage: ray-environment.sh VENV RAY_VENV}
ray_venv=${2:?usage: ray-environment.sh VENV RAY_VENV}

layer "$venv" "$ray_venv"
into "$ray_venv" 'ray[data,train]>=2.42' 'pyspark>=4.1' 'pandas>=2.2,<3'
# Its operators are for GPUs, and are compiled where they are used.
DS_BUILD_OPS=0 into "$ray_venv" 'deepspeed>=0.16'
