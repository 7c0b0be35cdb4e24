#!/usr/bin/env bash
# Usage: spark-environment.sh VENV SPARK_VENV [oldest]
# Makes the environment of the Spark tests on top of the development environment VENV: pyspark, the pandas that it asks for,
# and an object store to write to (moto) lie in SPARK_VENV, all else is taken from VENV, this package included. With
# "oldest", the oldest pyspark, pandas, NumPy, pyarrow and torch that are supported; OLDEST_TORCH says what pip is told to
# install as torch, e.g. a CPU build: those of PyPI for Linux bring CUDA, and so several GB.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/layers.sh

venv=${1:?usage: spark-environment.sh VENV SPARK_VENV [oldest]}
spark_venv=${2:?usage: spark-environment.sh VENV SPARK_VENV [oldest]}

layer "$venv" "$spark_venv"
if [ "${3:-}" = oldest ]; then
    read -ra torch <<<"${OLDEST_TORCH:-torch==2.3.*}"
    into "$spark_venv" "${torch[@]}" 'numpy==1.26.*'
    packages=('pyspark[connect]==3.5.*' 'pandas==2.1.*' 'numpy==1.26.*' 'pyarrow==16.*')
else
    packages=('pyspark[connect]>=4.1' 'pandas>=2.2,<3')
fi
into "$spark_venv" "${packages[@]}" 'moto[s3]>=5' flask flask-cors
