//! The configuration of the fleet that a benchmark runs.

/// Returns a configuration in which each feed is due again as soon as it was polled.
pub(crate) fn config(concurrency: usize) -> String {
    format!(
        "[policy]\nmode = \"classes\"\nmin_interval = \"1ms\"\nsalt = 0.0\nhot_minutes = false\nno_validator_factor = 1.0\n\
         import_spread = \"0s\"\n[policy.category.d]\ninterval = \"1ms\"\ninterval_max = \"1ms\"\n\
         [fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n\
         [host]\ngap = \"0s\"\n[worker]\nconcurrency = {concurrency}\n[log]\nlevel = \"error\"\n"
    )
}
