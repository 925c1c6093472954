//! Network namespaces on a bridge, and cuts between them.
//!
//! Each process of the cluster has a namespace with an address of its own; the clients are outside, where the
//! bridge is. A cut is one-way and silent: the sender is told that the other's address belongs to a
//! network card that does not exist. Nothing is refused or reset, so connections stay open and
//! nothing comes through.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use spindle_testkit::Place;

/// Before the process id in the names of namespaces.
const NAMESPACE: &str = "spindle-torture-";
/// The same for network cards, whose names are short.
const CARD: &str = "spt";
/// Where `ip netns` keeps the names.
const NAMESPACES: &str = "/run/netns";
/// For tests of networks (RFC 2544); a part of it for each run.
const NETWORK: &str = "198.18";
/// The address of a card that does not exist.
const NOBODY: &str = "02:00:00:00:00:01";
/// How long a connection over a cut is tried, in seconds.
const TRIED_FOR: &str = "0.3";
/// What `timeout` ends with when its time is over.
const TIME_IS_OVER: i32 = 124;

/// Namespaces, all connected. Dropping this removes them.
pub struct Network {
    bridge: String,
    /// Namespaces and their addresses.
    places: Vec<(String, String)>,
    cuts: Vec<(usize, usize)>,
}

/// Whether there can be networks.
pub enum Permitted {
    Yes(Network),
    /// With the reason.
    No(String),
}

impl Network {
    /// Makes namespaces with these names.
    ///
    /// # Errors
    ///
    /// When it fails for another reason than that it is not permitted.
    pub fn make(names: &[&str]) -> Result<Permitted> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(Permitted::No("only root can make network namespaces".to_owned()));
        }
        remove_left_ones()?;
        let run = std::process::id();
        let part = free_part()?;
        let bridge = format!("{CARD}{run}");
        let mut network = Network { bridge: bridge.clone(), places: Vec::new(), cuts: Vec::new() };
        for (index, name) in names.iter().enumerate() {
            let (namespace, card) = (format!("{NAMESPACE}{run}-{name}"), card_of(&bridge, index));
            match ip(&["netns", "add", &namespace]) {
                Err(e) if is_forbidden(&e) => return Ok(Permitted::No(format!("{e:#}"))),
                made => made?,
            }
            let host = format!("{part}.{}", index + 11);
            network.places.push((namespace.clone(), host.clone()));
            if index == 0 {
                match ip(&["link", "add", &bridge, "type", "bridge"]) {
                    Err(e) if is_forbidden(&e) => return Ok(Permitted::No(format!("{e:#}"))),
                    made => made?,
                }
                ip(&["addr", "add", &format!("{part}.1/24"), "dev", &bridge])?;
                ip(&["link", "set", &bridge, "up"])?;
            }
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", &namespace];
            ip(&[&["link", "add", &card][..], &peer].concat())?;
            ip(&["link", "set", &card, "master", &bridge, "up"])?;
            ip(&["-n", &namespace, "addr", "add", &format!("{host}/24"), "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(Permitted::Yes(network))
    }

    /// The place for a process that is to run in a namespace.
    pub fn place(&self, index: usize) -> Place {
        let (name, host) = self.places[index].clone();
        Place::Namespace { name, host }
    }

    /// From now on nothing of what `from` sends reaches `to`.
    pub fn cut(&mut self, from: usize, to: usize) -> Result<()> {
        self.cuts.push((from, to));
        let ((namespace, _), (_, host)) = (&self.places[from], &self.places[to]);
        let nobody = ["lladdr", NOBODY, "nud", "permanent", "dev", "eth0"];
        ip(&[&["-n", namespace, "neigh", "replace", host][..], &nobody].concat())
    }

    /// Fails if a connection from one to a port of the other gets an answer, of whatever kind.
    pub fn ensure_cut(&self, from: usize, to: usize, port: u16) -> Result<()> {
        let ((namespace, _), (_, host)) = (&self.places[from], &self.places[to]);
        let connect = format!("exec 3<>/dev/tcp/{host}/{port}");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "timeout", TRIED_FOR, "bash", "-c", &connect]);
        let output = command.output().context("starting ip")?;
        ensure!(
            output.status.code() == Some(TIME_IS_OVER),
            "{namespace} is cut off from {host}:{port}, and a connection there ended with {}",
            output.status
        );
        Ok(())
    }

    /// Nothing is cut any more.
    pub fn heal(&mut self) -> Result<()> {
        for (from, to) in std::mem::take(&mut self.cuts) {
            let ((namespace, _), (_, host)) = (&self.places[from], &self.places[to]);
            ip(&["-n", namespace, "neigh", "del", host, "dev", "eth0"])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Cards disappear with their namespace as well, but only some time after it, and the next
        // network has cards of the same names.
        let cards = (0..self.places.len()).map(|index| remove_card(&card_of(&self.bridge, index)));
        let cards: Vec<_> = cards.chain([remove_card(&self.bridge)]).collect();
        let namespaces = self.places.iter().map(|(namespace, _)| ip(&["netns", "del", namespace]));
        for error in cards.into_iter().chain(namespaces).filter_map(Result::err) {
            eprintln!("a part of the network is left: {error:#}");
        }
    }
}

/// The card outside of a namespace.
fn card_of(bridge: &str, index: usize) -> String {
    format!("{bridge}n{index}")
}

/// Removes a card, and its other end, if it is there.
fn remove_card(card: &str) -> Result<()> {
    if !Path::new("/sys/class/net").join(card).exists() {
        return Ok(());
    }
    ip(&["link", "del", card])
}

/// Removes what runs have left that were killed.
fn remove_left_ones() -> Result<()> {
    let is_left = |name: &str, before: &str| {
        let rest = name.strip_prefix(before).unwrap_or_default();
        let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
        !id.is_empty() && !Path::new("/proc").join(id).exists()
    };
    for namespace in names_in(NAMESPACES).into_iter().filter(|it| is_left(it, NAMESPACE)) {
        ip(&["netns", "del", &namespace])?;
    }
    for card in names_in("/sys/class/net").into_iter().filter(|it| is_left(it, CARD)) {
        // A card that disappeared with its namespace meanwhile is fine.
        let _ = ip(&["link", "del", &card]);
    }
    Ok(())
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The first three numbers of addresses that nobody has here.
fn free_part() -> Result<String> {
    let taken = said_by_ip(&["-o", "addr", "show"])?;
    let first = std::process::id() % 256;
    let parts = (0..256).map(|n| format!("{NETWORK}.{}", (first + n) % 256));
    let mut free = parts.filter(|part| !taken.contains(&format!(" {part}.")));
    free.next().context("all addresses for tests of networks are taken")
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["Operation not permitted", "Permission denied"].iter().any(|words| text.contains(words))
}

fn ip(arguments: &[&str]) -> Result<()> {
    said_by_ip(arguments).map(drop)
}

fn said_by_ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context("starting ip")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;
    use std::process::Stdio;

    use super::*;
    use crate::process::Process;

    #[test]
    fn a_cut_is_one_way_and_silent_until_it_is_healed() {
        let mut network = match Network::make(&["a", "b", "c"]).unwrap() {
            Permitted::Yes(network) => network,
            // A user who may not create namespaces is told why, and nothing is left behind.
            Permitted::No(reason) => return assert!(!reason.is_empty()),
        };
        let Place::Namespace { name, host } = network.place(1) else {
            panic!("a place of its own")
        };
        let serve = "import socket, sys\n\
                     listener = socket.create_server((sys.argv[1], 4222))\n\
                     print('listens', flush=True)\n\
                     while True: listener.accept()";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "python3", "-c", serve, &host]);
        let mut server = Process(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut said = server.0.stdout.take().unwrap();
        said.read_exact(&mut [0; "listens\n".len()]).unwrap();
        assert!(network.ensure_cut(0, 1, 4222).is_err());
        network.cut(0, 1).unwrap();
        network.ensure_cut(0, 1, 4222).unwrap();
        assert!(network.ensure_cut(2, 1, 4222).is_err(), "only one of them is cut off");
        TcpStream::connect(format!("{host}:4222")).expect("the clients reach it");
        network.heal().unwrap();
        assert!(network.ensure_cut(0, 1, 4222).is_err());
        // The way back is cut, not the way there.
        network.cut(1, 0).unwrap();
        network.ensure_cut(0, 1, 4222).unwrap();
        drop((server, network));
        let ours = format!("{NAMESPACE}{}-", std::process::id());
        assert!(!names_in(NAMESPACES).iter().any(|name| name.starts_with(&ours)));
        let cards = format!("{CARD}{}", std::process::id());
        assert!(!names_in("/sys/class/net").iter().any(|name| name.starts_with(&cards)));
    }
}
