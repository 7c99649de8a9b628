//! Generates the client for the etcd calls of a site on etcd, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile(["etcd.proto"], ["proto"])?)?;
    Ok(())
}
