//! A proxy that breaks a chosen request off, so that a server can be killed in the middle of it.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// When a request is broken off: before the server has seen it, or after it has answered, and the
/// answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

/// A request that is broken off; the client's connection ends when this is dropped.
pub struct Broken {
    _go_on: oneshot::Sender<()>,
}

struct Break {
    begins: String,
    moment: Moment,
    reached: oneshot::Sender<Broken>,
}

/// A running proxy; dropping it ends it.
pub struct Proxy {
    pub url: String,
    next: Arc<Mutex<Option<Break>>>,
    /// The request lines that came, in their order.
    pub asked: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before the server at this address.
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let next = Arc::<Mutex<Option<Break>>>::default();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (server, breaks, lines) = (server.to_owned(), Arc::clone(&next), Arc::clone(&asked));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (breaks, lines) = (Arc::clone(&breaks), Arc::clone(&lines));
                let server = server.clone();
                tokio::spawn(async move {
                    // While the server is away, so is the proxy.
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    serve(client, server, &breaks, &lines).await;
                });
            }
        });
        Self { url, next, asked, accepting }
    }

    /// Breaks the next request off that begins like this. The receiver hears of it.
    pub fn break_off(&self, begins: &str, moment: Moment) -> oneshot::Receiver<Broken> {
        let (reached, when) = oneshot::channel();
        let begins = begins.to_owned();
        *self.next.lock().unwrap() = Some(Break { begins, moment, reached });
        when
    }

    /// How many requests came that begin like this.
    pub fn count(&self, begins: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(begins)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    mut server: TcpStream,
    breaks: &Mutex<Option<Break>>,
    lines: &Mutex<Vec<String>>,
) {
    let mut broken: Option<Break> = None;
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let text = String::from_utf8_lossy(&asked[..length]);
                let line = text.lines().next().unwrap_or_default().to_owned();
                if line.ends_with("HTTP/1.1") {
                    lines.lock().unwrap().push(line.clone());
                }
                let hit = breaks.lock().unwrap().take_if(|next| line.starts_with(&next.begins));
                match hit {
                    Some(hit) if hit.moment == Moment::Before => return finish(hit).await,
                    hit => broken = hit.or(broken),
                }
                server.write_all(&asked[..length]).await.unwrap();
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if let Some(hit) = broken {
                    return finish(hit).await;
                }
                if client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn finish(hit: Break) {
    let (go_on, gone) = oneshot::channel();
    let _ = hit.reached.send(Broken { _go_on: go_on });
    let _ = gone.await;
}
