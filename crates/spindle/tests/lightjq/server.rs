//! A server of the real program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server; dropping it kills it.
pub struct Served {
    child: Child,
    /// Where its HTTP door listens.
    pub http: String,
}

impl Served {
    /// A server on a data folder.
    pub fn new(data: &Path, http: &str) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["serve", "--http", http, "--workq", "off", "--gearman", "off"])
            .args(["--jobd-master", "off", "--data"])
            .arg(data)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let greeting = lines
            .find_map(|line| line.ok().filter(|line| line.contains("http on ")))
            .expect("the server greets");
        // Read on, so that the server never writes to nobody.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let (_, behind) = greeting.split_once("http on ").unwrap();
        Served { http: behind.split(',').next().unwrap().to_owned(), child }
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
