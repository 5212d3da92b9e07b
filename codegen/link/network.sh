
# Over TCP, messages go out at once: announcing them would take several round trips each.
export UCX_RNDV_THRESH="${UCX_RNDV_THRESH:-inf}"
#@ if ports
export MPIEXEC_PORT_RANGE="${MPIEXEC_PORT_RANGE:-@FIRST_PORT@:@LAST_PORT@}"
export UCX_TCP_PORT_RANGE="${UCX_TCP_PORT_RANGE:-@FIRST_PORT@-@LAST_PORT@}"
#@ end
#@ if subnet
export SKYCC_SUBNET=@INTERFACE@
#@ else
#@ if interface
export UCX_NET_DEVICES="${UCX_NET_DEVICES:-@INTERFACE@}"
#@ end
#@ end
