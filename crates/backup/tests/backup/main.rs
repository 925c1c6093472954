//! Backups on simulated disks: crashes at every step, damage, sources that lie.

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod grows;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod records;
#[cfg(test)]
mod refused;
