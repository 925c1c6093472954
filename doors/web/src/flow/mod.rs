//! The flow that a job is in, as a drawing and as a list: pure functions from what the API answers
//! to HTML, the same for the same flow.
//!
//! The drawing is a layered one, as they are usually made (after Sugiyama, Tagawa and Toda): time
//! goes from left to right, and every arrow leads from a job to one that waits for it.
//!
//! 1. `gather.rs` chooses what is drawn. A flow of up to [`WHOLE_MAX`](gather::WHOLE_MAX) jobs is
//!    drawn job by job. In a larger one, jobs of one queue and status that wait for alike jobs and
//!    are waited for by alike jobs are one node (`98 × resize`). Only the nodes nearest to the job
//!    are drawn: there are limits on their distance and their number, and they have to fit on the
//!    page.
//! 2. `layers.rs` finds their places. The layer of a node is the length of the longest way to it;
//!    a node that waits for nothing stands just before the first one that waits for it. An arrow
//!    over several layers goes through a place in each of them. In its layer a node stands at the
//!    mean of its neighbours' places (barycenters, a fixed number of sweeps), in the order that had
//!    the fewest crossings.
//! 3. `drawing.rs` makes SVG of it, and a list of the same nodes for people who cannot see
//!    drawings.
//!
//! Only `node.rs` knows what a node is and how it is described: places and arrows use numbers.

mod drawing;
mod gather;
mod layers;
mod node;

pub(crate) use drawing::section;
