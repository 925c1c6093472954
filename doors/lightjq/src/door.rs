//! What all handlers share.

use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::Mutex;
use spindle_access::Access;
use spindle_budget::Budgets;
use spindle_engine::Engine;
use spindle_http::{BodyLimits, EngineBridge};
use spindle_limits::Places;
use tokio::sync::watch;

use crate::names::JobNames;
use crate::pusher::{Pusher, pusher};
use crate::registry::{Registry, WorkerLine};

/// The settings of the door. Tests shorten the times.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which clients are let in.
    pub access: Access,
    /// Limits of requests' bodies.
    pub body: BodyLimits,
    /// The budgets for what all clients together make the server hold, pushes included.
    pub budgets: Budgets,
    /// The connection slots that connections opened to push jobs take, as a door of their own.
    pub places: Places,
    /// Workers may register any address for pushes, not only their own.
    pub allow_urls: bool,
    /// A worker that polls for jobs is lost when it has none and has not polled for this long.
    pub lost_after_ms: u64,
    /// A worker that is pushed to is lost when pushes have failed for this long.
    pub drop_after_ms: u64,
    /// How often workers are checked for this.
    pub sweep_every: Duration,
    /// How long a worker may take to accept a job.
    pub push_time: Duration,
    /// The wait after a push that failed; it doubles.
    pub pause_min: Duration,
    /// The longest such wait.
    pub pause_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::open(),
            body: BodyLimits::default(),
            budgets: Budgets::default(),
            places: Places::default(),
            allow_urls: false,
            lost_after_ms: 60_000,
            drop_after_ms: 30_000,
            sweep_every: Duration::from_secs(1),
            push_time: Duration::from_secs(10),
            pause_min: Duration::from_millis(500),
            pause_max: Duration::from_secs(8),
        }
    }
}

/// The LightJQ door. Clones share one instance.
#[derive(Clone)]
pub struct LightJq(Arc<Shared>);

pub(crate) struct Shared {
    pub bridge: EngineBridge,
    pub options: Options,
    pub registry: Mutex<Registry>,
    pub names: JobNames,
    pub pusher: Pusher,
    stopping: watch::Sender<bool>,
    pub is_swept: Once,
    description: String,
}

impl LightJq {
    /// The door of an engine, with its description.
    pub(crate) fn described(engine: Engine, options: Options, description: String) -> LightJq {
        let pusher = pusher(options.places.door("lightjq-push"));
        LightJq(Arc::new(Shared {
            bridge: EngineBridge::new(engine),
            options,
            registry: Mutex::default(),
            names: JobNames::new(),
            pusher,
            stopping: watch::Sender::new(false),
            is_swept: Once::new(),
            description,
        }))
    }

    /// What the door offers, as an OpenAPI document in JSON.
    pub fn openapi(&self) -> &str {
        &self.0.description
    }

    /// The server stops: no jobs are pushed any more, and workers that wait for one get the
    /// answer that there is none.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// The workers that are registered, in the order they came.
    pub fn workers(&self) -> Vec<WorkerLine> {
        self.registry().lines()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.0.bridge
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.bridge.engine()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }
}
