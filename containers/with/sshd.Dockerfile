# A layer for Kubernetes' MPIJob, whose launcher reaches its workers by ssh: sshd without root, on port 2222. No key is in
# it: the MPI Operator mounts those of a job, the worker's own among them, from its Secret, and nothing but a key lets in.
# To build it in a clone, on an image of collbench with an MPI:
#   docker build -f containers/with/sshd.Dockerfile --build-arg BASE=collbench/openmpi -t collbench/openmpi-sshd containers/with
ARG BASE
FROM ${BASE}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server openssh-client \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* && usermod --shell /bin/sh collbench \
 && printf '%s\n' 'Port 2222' 'HostKey /home/collbench/.ssh/id_rsa' 'PidFile none' 'StrictModes no' 'UsePAM no' \
    'AuthenticationMethods publickey' 'LogLevel ERROR' > /etc/ssh/collbench_sshd_config \
 && printf '%s\n' 'Host *' ' Port 2222' ' StrictHostKeyChecking no' ' UserKnownHostsFile /dev/null' ' LogLevel ERROR' \
    ' ConnectionAttempts 10' > /etc/ssh/ssh_config.d/collbench.conf
USER collbench
