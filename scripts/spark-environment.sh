#!/usr/bin/env bash
# Usage: spark-environment.sh VENV SPARK_VENV [oldest]
# Makes the environment of the Spark tests on top of the development environment VENV: pyspark, the pandas that it asks for,
# and an object store to write to (moto) lie in SPARK_VENV, all else is taken from VENV, this package included. With
# "oldest", the oldest pyspark, pandas, NumPy, pyarrow and torch that are supported; OLDEST_TORCH says what pip is told to
# install as torch, e.g. a CPU build: those of PyPI for Linux bring CUDA, and so several GB.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: spark-environment.sh VENV SPARK_VENV [oldest]}
spark_venv=${2:?usage: spark-environment.sh VENV SPARK_VENV [oldest]}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$venv/bin/python" -m venv --without-pip "$spark_venv"
echo "import site; site.addsitedir('$(realpath "$(site_packages "$venv")")')" >"$(site_packages "$spark_venv")/base.pth"
if [ "${3:-}" = oldest ]; then
    read -ra torch <<<"${OLDEST_TORCH:-torch==2.3.*}"
    "$spark_venv/bin/python" -m pip -qq --disable-pip-version-check install "${torch[@]}" 'numpy==1.26.*'
    packages=('pyspark[connect]==3.5.*' 'pandas==2.1.*' 'numpy==1.26.*' 'pyarrow==16.*')
else
    packages=('pyspark[connect]>=4.1' 'pandas>=2.2,<3')
fi
"$spark_venv/bin/python" -m pip -qq --disable-pip-version-check install "${packages[@]}" 'moto[s3]>=5' flask flask-cors
