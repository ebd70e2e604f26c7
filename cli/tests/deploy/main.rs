//! Deployment files: manifests, alerts, dashboards, image. The checks are Python modules (`k8s/tests`), because the
//! tools that know Kubernetes' schemas are written in Python; each module is a test here, and calls the program that
//! was just built.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::path::Path;
use std::process::Command;

/// Runs one module of `k8s/tests`; shows its output if it fails.
fn module_passes(module: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let run =
        format!(r#"set -e; tools="$(dev/tools)"; eval "$tools"; exec "$PYTHON" -m unittest -q k8s.tests.{module}"#);
    let mut shell = Command::new("bash");
    shell.args(["-c", &run]).current_dir(root).env("FEEDFLEET_BINARY", env!("CARGO_BIN_EXE_feedfleet"));
    let output = shell.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    let ran = printed.lines().find_map(|line| line.strip_prefix("Ran ")).unwrap_or_default();
    assert!(!ran.is_empty() && !ran.starts_with("0 "), "it ran no test: {printed}");
}

#[test]
fn the_debian_package_is_installed_polls_is_upgraded_and_purged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let try_it =
        Command::new("dev/package/try").arg(env!("CARGO_BIN_EXE_feedfleet")).current_dir(root).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&try_it.stdout), String::from_utf8_lossy(&try_it.stderr));
    assert!(try_it.status.success() && out.ends_with(": passed\n"), "{out}{err}");
}

#[test]
fn manifests_render_and_fit_their_schemas_themselves_and_the_program() {
    module_passes("test_manifests");
}

#[test]
fn dashboards_and_alerts_are_about_metrics_that_a_running_fleet_has() {
    module_passes("test_monitoring");
}

#[test]
fn the_containers_command_lines_make_a_fleet_that_polls() {
    module_passes("test_roles");
}

#[test]
fn the_compose_file_is_valid_closed_and_fits_the_program() {
    module_passes("test_compose");
}

#[test]
fn the_systemd_units_are_valid_and_confined() {
    module_passes("test_units");
}

#[test]
fn the_dockerfile_is_clean_and_fits_program_and_manifests() {
    module_passes("test_image");
}
