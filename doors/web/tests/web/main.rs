//! The web pages, over a live API on a test bench.

#[cfg(test)]
mod access;
#[cfg(test)]
mod actions;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod constraints;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod history;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod jobd;
#[cfg(test)]
mod output;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod schedules;
