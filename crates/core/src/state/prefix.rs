//! Finding a job by the beginning of one of its keys.

use bytes::Bytes;

use super::*;

impl State {
    /// The unfinished job with the first key of a namespace, in the order of their names, that
    /// begins like this. For names that count in a scope (one function of many): a door that puts
    /// the scope behind the name finds the name in all scopes at the price of one look.
    ///
    /// Says none when that key is a finished job's.
    pub fn job_by_key_prefix(&self, namespace: Origin, prefix: &[u8]) -> Option<Found<'_>> {
        let namespace = namespace as i32;
        let start = (namespace, Bytes::copy_from_slice(prefix));
        let ((found_in, name), handle) = self.named.range(start..).next()?;
        let fits = *found_in == namespace && name.starts_with(prefix) && handle & FINISHED == 0;
        fits.then(|| self.found(*handle))
    }
}
