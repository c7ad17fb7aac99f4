#!/bin/bash
#SBATCH --job-name=collbench-RUN
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=2:00:00
#SBATCH --no-requeue
#SBATCH --output=/lustre/collbench/collbench-RUN/job.log
#SBATCH --hint=nomultithread
#SBATCH --distribution=block
#SBATCH --partition=cpu
#SBATCH hetjob
#SBATCH --job-name=collbench-RUN
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=3
#SBATCH --cpus-per-task=2
#SBATCH --time=2:00:00
#SBATCH --no-requeue
#SBATCH --output=/lustre/collbench/collbench-RUN/job.log
#SBATCH --gpus-per-node=2
#SBATCH --hint=nomultithread
#SBATCH --distribution=block
#SBATCH --partition=gpu
export PATH HOME=${HOME:-~} USER=${USER:-$(id -un)}  # which --export=NONE leaves out
cd /lustre/collbench/collbench-RUN || exit 72
export WORKER_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1" | head -n 1)
scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0,$SLURM_JOB_NODELIST_HET_GROUP_1" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)

# step 0: openmpi multi files, 1 server and 2 workers on 3 hosts
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='[{"hosts":1,"each":1,"cores":2,"boxes":"host","crowded":false},{"hosts":2,"each":1,"cores":2,"boxes":"host","crowded":false}]'
export PRTE_MCA_plm_ssh_agent=collbench-relay
export OMPI_MCA_bml_base_verbose=20
export OMPI_MCA_btl_base_verbose=20
export OMPI_MCA_pml_base_verbose=10
exec srun --job-name=collbench-RUN-0 --het-group=0 --kill-on-bad-exit=1 --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block --container-image=/img/openmpi --container-mounts=/lustre/collbench:/lustre/collbench --container-name=collbench-openmpi --no-container-mount-home \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; export COLLBENCH_CONTAINER=c$SLURM_NODEID; exec "$@"' task python -m collbench run /lustre/collbench/collbench-RUN/0/plan.json --out /lustre/collbench/collbench-RUN/0/out --style csv \
  : --job-name=collbench-RUN-0 --het-group=1 --kill-on-bad-exit=1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=2 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block --gpu-bind=none --container-image=/img/openmpi --container-mounts=/lustre/collbench:/lustre/collbench --container-name=collbench-openmpi --no-container-mount-home \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; export COLLBENCH_CONTAINER=c$SLURM_NODEID; exec "$@"' task python -m collbench run /lustre/collbench/collbench-RUN/0/plan.json --out /lustre/collbench/collbench-RUN/0/out --style csv

# step 1: openmpi multi files, 1 server and 2 workers
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='{"hosts":1,"each":3,"cores":2,"boxes":"host","crowded":false}'
export PRTE_MCA_plm_ssh_agent=collbench-relay
export OMPI_MCA_bml_base_verbose=20
export OMPI_MCA_btl_base_verbose=20
export OMPI_MCA_pml_base_verbose=10
export FIRST_NODE=$WORKER_NODE
exec srun --job-name=collbench-RUN-1 --het-group=1 --kill-on-bad-exit=1 --nodes=1 --ntasks=3 --ntasks-per-node=3 --cpus-per-task=2 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block --gpu-bind=none --container-image=/img/openmpi --container-mounts=/lustre/collbench:/lustre/collbench --container-name=collbench-openmpi --no-container-mount-home \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; export COLLBENCH_CONTAINER=c$SLURM_NODEID; exec "$@"' task python -m collbench run /lustre/collbench/collbench-RUN/1/plan.json --out /lustre/collbench/collbench-RUN/1/out --style csv
