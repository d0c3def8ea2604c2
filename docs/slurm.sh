#!/bin/bash
# The agents of one experiment on several hosts:
#   sbatch --nodes 4 docs/slurm.sh CONFIG OUT [options of sheafed run]
# OUT must be on a file system that all hosts share. Submit the same line again to continue, with
# the same or another number of nodes.
#SBATCH --job-name=sheafed
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4   # processes per host; more processes than agents are idle
#SBATCH --time=24:00:00
#SBATCH --requeue

set -euo pipefail
config=$1 out=$2
shift 2

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=1                  # one thread per process; training.threads is 1 too
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   # the ranks' store moves with rank 0
# export GLOO_SOCKET_IFNAME=eth1          # if hosts have several network interfaces

exec srun --kill-on-bad-exit=1 --cpus-per-task "$SLURM_CPUS_PER_TASK" torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "$SLURM_CPUS_PER_TASK" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head:29400" \
    -m sheafed run "$config" --out "$out" --resume "$@"
