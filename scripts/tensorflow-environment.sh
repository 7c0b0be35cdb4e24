#!/usr/bin/env bash
# Usage: tensorflow-environment.sh VENV TENSORFLOW_VENV
# Makes the environment of the tests with TensorFlow on top of the development environment VENV: TensorFlow and what it
# asks for lie in TENSORFLOW_VENV, all else is taken from VENV, this package included.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/layers.sh

venv=${1:?usage: tensorflow-environment.sh VENV TENSORFLOW_VENV}
tensorflow_venv=${2:?usage: tensorflow-environment.sh VENV TENSORFLOW_VENV}

layer "$venv" "$tensorflow_venv"
into "$tensorflow_venv" 'tensorflow-cpu>=2.16'
