# Sourced by the scripts that make an environment on top of the development environment.

# layer BASE NEW: a virtual environment without pip of its own; what is not installed into it is taken from BASE, this
# package included.
layer() {
    "$1/bin/python" -m venv --without-pip "$2"
    echo "import site; site.addsitedir('$(realpath "$(site_packages "$1")")')" >"$(site_packages "$2")/base.pth"
}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# into VENV PACKAGE...
into() {
    local venv=$1
    shift
    "$venv/bin/python" -m pip -qq --disable-pip-version-check install "$@"
}
