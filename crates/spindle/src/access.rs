//! Authentication of a running server's clients: its tokens file, and what its doors require.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use spindle_access::{Access, Watch, read_secret};
use spindle_limits::RequestRates;

use crate::{
    config::{Config, Missing},
    exit::{Code, Failure},
};

/// The tokens in force, and the thread that reads them anew.
#[derive(Debug)]
pub struct Entrance {
    access: Access,
    rates: Option<Arc<RequestRates>>,
    master_password: Option<String>,
    _watch: Option<Watch>,
}

impl Entrance {
    /// Reads the files that the settings name, and warns of doors that are left unguarded.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let unusable = |error: String| Failure::with(Code::Usage, error);
        let access = match &config.tokens {
            Some(path) => {
                Access::of_file(path).map_err(|error| unusable(format!("--tokens: {error}")))?
            }
            None => Access::open(),
        };
        let password = config.jobd_master_password_file.as_deref().map(read_secret).transpose();
        let master_password =
            password.map_err(|error| unusable(format!("--jobd-master-password-file: {error}")))?;
        let watch = config.tokens.as_ref().map(|_| Watch::start(access.clone())).transpose();
        let watch = watch.context("cannot start the thread that watches the tokens file")?;
        warn_of_insecure(config);
        let rates = RequestRates::new(config.token_requests_max, config.address_requests_max);
        let rates = rates.map(Arc::new);
        let access = access.with_rates(rates.clone());
        Ok(Self { access, rates, master_password, _watch: watch })
    }

    /// The access rules of a door that listens on this address.
    pub fn door(&self, config: &Config, addr: SocketAddr) -> Access {
        self.access.required(config.asks(addr))
    }

    /// The request rates of tokens and addresses; `None`: unlimited.
    pub fn rates(&self) -> Option<Arc<RequestRates>> {
        self.rates.clone()
    }

    /// The password that the jobd master requires; `None`: it requires none.
    pub fn master_password(&self) -> Option<String> {
        self.master_password.clone()
    }

    /// Reads the tokens file anew, and says in the log what came of it.
    pub fn reload(&self) {
        self.access.read_again().log();
    }
}

fn warn_of_insecure(config: &Config) {
    for (door, address) in config.doors().filter(|(door, _)| config.is_insecure(door)) {
        let danger = match config.missing(door, address) {
            None => continue,
            Some(Missing::Identity) => "everyone who reaches it can do everything",
            Some(Missing::Tls) => "everyone on the way can read tokens and jobs, and change them",
            Some(Missing::Both) => {
                "everyone who reaches it can do everything, and everyone on the way can read and \
                 change what is sent"
            }
        };
        tracing::warn!("--insecure {door}: {address} is not guarded: {danger}");
    }
    if let Some(address) = config.cluster_in_clear() {
        tracing::warn!(
            "--insecure cluster: {address} is not guarded: everyone on the way can read what nodes say to each other, \
             and change it"
        );
    }
}

#[cfg(test)]
mod tests {
    use spindle_limits::Of;

    use super::*;

    /// Test clients connect from this machine, whose addresses are not limited.
    #[test]
    fn an_address_has_its_requests_a_second_at_every_door() {
        let config = Config { address_requests_max: Some(2), ..Config::default() };
        let far = "192.0.2.1".parse().unwrap();
        let entrance = Entrance::open(&config).unwrap();
        let login = entrance.door(&config, "127.0.0.1:1".parse().unwrap()).login(None).at(far);
        assert_eq!([login.count(), login.count()], [Ok(()), Ok(())]);
        assert!(login.count().is_err());
        // The jobd master has the same rates.
        assert_eq!(entrance.rates().unwrap().exceeded(Of::Address), 1);
        assert!(Entrance::open(&Config::default()).unwrap().rates().is_none());
    }
}
