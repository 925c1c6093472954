//! Workq's router.
