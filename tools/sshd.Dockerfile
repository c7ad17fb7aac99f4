# A layer for Kubernetes' MPIJob, whose launcher reaches its workers by ssh: sshd without root, on port 2222, with the key
# that the MPI Operator mounts. On any image of collbench:
#   docker build -f tools/sshd.Dockerfile --build-arg IMAGE=collbench/openmpi -t registry/collbench/openmpi tools
ARG IMAGE
FROM ${IMAGE}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server openssh-client \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* && usermod --shell /bin/sh collbench \
 && printf '%s\n' 'Port 2222' 'HostKey /home/collbench/.ssh/id_rsa' 'PidFile none' 'StrictModes no' 'UsePAM no' \
    'PasswordAuthentication no' 'LogLevel ERROR' > /etc/ssh/collbench_sshd_config \
 && printf '%s\n' 'Host *' ' Port 2222' ' StrictHostKeyChecking no' ' UserKnownHostsFile /dev/null' ' LogLevel ERROR' \
    ' ConnectionAttempts 10' > /etc/ssh/ssh_config.d/collbench.conf
USER collbench
