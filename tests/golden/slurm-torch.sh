#!/bin/bash
#SBATCH --job-name=collbench-RUN
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=2:00:00
#SBATCH --no-requeue
#SBATCH --output=/lustre/collbench/collbench-RUN/job.log
#SBATCH --hint=nomultithread
#SBATCH --distribution=block
#SBATCH --exclusive
export PATH HOME=${HOME:-~} USER=${USER:-$(id -un)}  # which --export=NONE leaves out
cd /lustre/collbench/collbench-RUN || exit 72
scontrol show hostnames "$SLURM_JOB_NODELIST" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)

# step 0: torch host, 4 ranks on 2 hosts
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='{"hosts":2,"each":2,"cores":1,"boxes":"none","crowded":false}'
exec srun --job-name=collbench-RUN-0 --kill-on-bad-exit=1 --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=none --export=ALL --hint=nomultithread --distribution=block \
  sh -c 'export RANK=$SLURM_PROCID; export LOCAL_RANK=$SLURM_LOCALID; export WORLD_SIZE=$SLURM_STEP_NUM_TASKS; export MASTER_ADDR=$FIRST_NODE; export MASTER_PORT=$((29400 + SLURM_STEP_ID % 3000)); exec "$@"' task /lustre/torch/bin/python -m collbench run /lustre/collbench/collbench-RUN/0/plan.json --out /lustre/collbench/collbench-RUN/0/out --style csv
