//! Generates the gRPC definitions from `proto/`, without `protoc`, when the feature asks for them.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    #[cfg(feature = "grpc")]
    {
        let definitions =
            ["portolan/v1/kv.proto", "portolan/v1/cluster.proto", "portolan/v1/deployment.proto"];
        tonic_prost_build::configure()
            .bytes(".")
            .emit_rerun_if_changed(false)
            .compile_fds(protox::compile(definitions, ["proto"])?)?;
    }
    Ok(())
}
