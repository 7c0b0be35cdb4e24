#!/usr/bin/env bash
# Usage: tensorflow-environment.sh VENV TENSORFLOW_VENV
# Makes the environment of the tests with TensorFlow on top of the development environment VENV: TensorFlow and what it
# asks for lie in TENSORFLOW_VENV, all else is taken from VENV, this package included.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: tensorflow-environment.sh VENV TENSORFLOW_VENV}
tensorflow_venv=${2:?usage: tensorflow-environment.sh VENV TENSORFLOW_VENV}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$venv/bin/python" -m venv --without-pip "$tensorflow_venv"
echo "import site; site.addsitedir('$(realpath "$(site_packages "$venv")")')" \
    >"$(site_packages "$tensorflow_venv")/base.pth"
"$tensorflow_venv/bin/python" -m pip -qq --disable-pip-version-check install 'tensorflow-cpu>=2.16'
