//! A server of the real program.

use std::path::Path;

use spindle_testkit::SpindleServer;

/// A running server; dropping it kills it.
pub struct Served {
    server: SpindleServer,
    /// Where its HTTP door listens.
    pub http: String,
}

impl Served {
    /// A server on a data folder.
    pub fn new(data: &Path, http: &str) -> Served {
        let doors = ["--http", http, "--workq", "off", "--gearman", "off", "--jobd-master", "off"];
        let arguments = [&doors[..], &["--data", data.to_str().unwrap()]].concat();
        let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "http");
        Served { http: server.address_of("http"), server }
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        self.server.crash();
    }
}
