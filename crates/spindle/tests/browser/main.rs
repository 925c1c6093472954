//! The web pages of a real server in a real browser: Debian's Chromium without a screen, driven
//! through chromedriver. `cargo xtask test` installs both, and axe-core, which looks for obstacles to
//! reading or using a page.

#[cfg(test)]
mod actions;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod data;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod login;
#[cfg(test)]
mod pages;
