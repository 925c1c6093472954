//! The listener and the site, over real sockets and without a door.

#[cfg(test)]
mod bridge;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod site;
