//! The container image, built from `packaging/container/Dockerfile` by whichever builder is here.

use std::path::Path;

use anyhow::{Result, bail};

use super::Release;
use crate::process::{command, exists, run};

/// Builders that take a Dockerfile, with how each is asked whether it works here. The format of OCI has no
/// health checks: podman and buildah would leave ours out.
const BUILDERS: [(&str, &str); 3] = [
    ("docker build", "docker info"),
    ("podman build --format docker", "podman info"),
    ("buildah build --format docker", "buildah info"),
];

/// Builds `postrider:<version>`.
pub(super) fn build(root: &Path, release: &Release) -> Result<()> {
    let Some((builder, _)) = BUILDERS.iter().find(|(_, probe)| exists(probe)) else {
        bail!("no container builder works here; install docker, podman or buildah");
    };
    let mut build = command(root, builder);
    build.args(["--file", "packaging/container/Dockerfile", "--tag"]);
    run(build.arg(format!("postrider:{}", release.version)).arg("."))
}
