#!/usr/bin/env bash
# Install JupyterHub and its proxy into build/hub, for tests/test_hub.py: nothing of them comes into .venv, whose packages the hub's servers use.
set -euo pipefail
cd "$(dirname "$0")/.."
hub=build/hub
where() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [[ ! -x $hub/bin/jupyterhub ]]; then
    .venv/bin/python -m venv "$hub"
    printf 'import site; site.addsitedir("%s")\n' "$(where .venv/bin/python)" > "$(where "$hub/bin/python")/course.pth"
    "$hub/bin/python" -m pip install --quiet --disable-pip-version-check 'jupyterhub>=6,<7'
fi
if [[ ! -x $hub/node_modules/.bin/configurable-http-proxy ]]; then
    npm install --silent --no-fund --no-audit --prefix "$hub" 'configurable-http-proxy@5'
fi
