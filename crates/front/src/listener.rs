//! An open port, and the threads behind it.
//!
//! One thread accepts connections and distributes them to all in turn; a connection stays with its
//! thread, which has a runtime of its own. So a connection, its requests and the batcher where their
//! answers arrive are on one thread, and threads share nothing during a request except the site
//! itself.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// Connections that wait for one thread to take them.
const ACCEPTED_MAX: usize = 1024;
/// After a failed accept (for example without file descriptors) the port pauses this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a front does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The port cannot be opened.
    #[error("--{flag} {address} cannot be opened: {cause}")]
    Port {
        /// The flag without its dashes.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("TLS of --{flag}: {cause}")]
    Tls {
        /// The flag without its dashes.
        flag: &'static str,
        /// What is wrong with it.
        cause: server::tls::TlsError,
    },
    /// The system refuses a thread.
    #[error("the system refuses a thread for --{flag}: {cause}")]
    Thread {
        /// The flag without its dashes.
        flag: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

/// A bound port that does not accept yet.
pub(crate) struct Listener {
    flag: &'static str,
    listener: std::net::TcpListener,
    address: SocketAddr,
}

/// A thread's accepted connections.
pub(crate) type Inbox = mpsc::Receiver<Accepted>;

/// Becomes true, or is dropped, when the port closes.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Completes when the port closes.
    pub(crate) async fn wait(&mut self) {
        // An error means that the front was dropped, which is a stop too.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}

impl Listener {
    /// Binds a port. `flag`: its flag without the dashes, also the name of its threads.
    pub(crate) fn bind(flag: &'static str, address: SocketAddr) -> Result<Listener, OpenError> {
        let port = |cause| OpenError::Port { flag, address, cause };
        let listener = std::net::TcpListener::bind(address).map_err(port)?;
        listener.set_nonblocking(true).map_err(port)?;
        let address = listener.local_addr().map_err(port)?;
        Ok(Listener { flag, listener, address })
    }

    /// The address it listens on; with the actual port if port 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the port: `worker` runs once for each thread, inside the thread's runtime, and returns
    /// what the thread does until the port closes. `blocking_max`: a thread's helpers for calls that
    /// block.
    pub(crate) fn serve<F>(
        self,
        threads: usize,
        blocking_max: usize,
        mut worker: impl FnMut(Inbox, Stop) -> F,
    ) -> Result<Port, OpenError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Listener { flag, listener, address } = self;
        let refused = |cause| OpenError::Thread { flag, cause };
        let runtimes = (0..threads.max(1)).map(|_| runtime(blocking_max));
        let runtimes = runtimes.collect::<io::Result<Vec<_>>>().map_err(refused)?;
        let (inputs, inboxes): (Vec<_>, Vec<_>) =
            runtimes.iter().map(|_| mpsc::channel(ACCEPTED_MAX)).unzip();
        let listener = {
            let _inside = runtimes[0].enter();
            let port = |cause| OpenError::Port { flag, address, cause };
            TcpListener::from_std(listener).map_err(port)?
        };
        runtimes[0].spawn(accept(listener, inputs));
        let (stop, stopped) = watch::channel(false);
        let mut port = Port { address, stop, threads: Vec::new() };
        for (number, (runtime, inbox)) in runtimes.into_iter().zip(inboxes).enumerate() {
            let work = {
                let _inside = runtime.enter();
                worker(inbox, Stop(stopped.clone()))
            };
            let run = move || {
                runtime.block_on(work);
                runtime.shutdown_background();
            };
            let thread = std::thread::Builder::new().name(format!("{flag}-{number}"));
            port.threads.push(thread.spawn(run).map_err(refused)?);
        }
        Ok(port)
    }
}

fn runtime(blocking_max: usize) -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(blocking_max).build()
}

/// A served port. Dropping it stops its threads, and waits for them.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Port {
    /// The address it listens on; with the actual port if port 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// An accepted connection, on its way to the thread that will serve it.
pub(crate) struct Accepted {
    stream: std::net::TcpStream,
    pub(crate) from: SocketAddr,
}

impl Accepted {
    /// The stream, on the runtime of the calling thread. `keepalive`: the idle time after which the
    /// system probes it, so that a connection ends when the other side is gone without closing it.
    pub(crate) fn open(self, keepalive: Option<Duration>) -> io::Result<TcpStream> {
        let stream = TcpStream::from_std(self.stream)?;
        stream.set_nodelay(true)?;
        if let Some(after) = keepalive {
            let probes = socket2::TcpKeepalive::new().with_time(after);
            socket2::SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        }
        Ok(stream)
    }
}

/// Accepts connections and distributes them in turn, until a thread is gone.
async fn accept(listener: TcpListener, threads: Vec<mpsc::Sender<Accepted>>) {
    for thread in threads.iter().cycle() {
        let accepted = loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, from)| Ok((stream.into_std()?, from))) {
                Ok((stream, from)) => break Accepted { stream, from },
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        };
        if thread.send(accepted).await.is_err() {
            return;
        }
    }
}

/// The accepting side of a port's TLS, if it has any.
pub(crate) fn tls_acceptor(
    flag: &'static str,
    tls: Option<&server::config::TlsConfig>,
    alpn: &[&[u8]],
) -> Result<Option<TlsAcceptor>, OpenError> {
    let load = |tls| server::tls::client_port(tls, alpn);
    let config = tls.map(load).transpose().map_err(|cause| OpenError::Tls { flag, cause })?;
    Ok(config.map(TlsAcceptor::from))
}
