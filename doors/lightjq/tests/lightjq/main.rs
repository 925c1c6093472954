//! LightJQ: its bytes, and its door over an engine in memory.

#[cfg(test)]
mod access;
#[cfg(test)]
mod constraints;
#[cfg(test)]
mod convert;
#[cfg(test)]
mod done;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod large;
#[cfg(test)]
mod page;
#[cfg(test)]
mod polling;
#[cfg(test)]
mod push;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod wire;
#[cfg(test)]
mod workers;
