#!/usr/bin/env bash
# Usage: ray-environment.sh VENV RAY_VENV
# Makes the environment of the tests of Ray and DeepSpeed on top of the development environment VENV: the two, Spark, which
# launches DeepSpeed, and what they ask for lie in RAY_VENV, all else is taken from VENV, this package included.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: ray-environment.sh VENV RAY_VENV}
ray_venv=${2:?usage: ray-environment.sh VENV RAY_VENV}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$venv/bin/python" -m venv --without-pip "$ray_venv"
echo "import site; site.addsitedir('$(realpath "$(site_packages "$venv")")')" >"$(site_packages "$ray_venv")/base.pth"
"$ray_venv/bin/python" -m pip -qq --disable-pip-version-check install 'ray[data,train]>=2.42' 'pyspark>=4.1' 'pandas>=2.2,<3'
# Its operators are for GPUs, and are compiled where they are used.
DS_BUILD_OPS=0 "$ray_venv/bin/python" -m pip -qq --disable-pip-version-check install 'deepspeed>=0.16'
