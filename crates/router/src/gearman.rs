//! Gearman's router.
