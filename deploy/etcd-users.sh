#!/bin/sh
# An etcd with users for one crawlring cluster: `crawler` may read and write its keys and nothing else, `root` may
# change users. Run once, as whoever may administrate etcd; etcdctl's own options come from ETCDCTL_* variables
# (ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY).
#
#   etcd-users.sh CLUSTER ROOT_PASSWORD_FILE CRAWLER_PASSWORD_FILE
#
# Then, for nodes and commands: CRAWLRING_ETCD_SECURITY__USER=crawler and CRAWLRING_ETCD_SECURITY__PASSWORD_FILE=...
# Passwords are read from files, because everybody on a machine can read a command line. With client certificates no
# password is needed: the certificate's common name is the user (`crawler`).
set -eu
cluster=${1:?CLUSTER} root=${2:?ROOT_PASSWORD_FILE} crawler=${3:?CRAWLER_PASSWORD_FILE}
export ETCDCTL_API=3

etcdctl user add root --interactive=false < "$root"
etcdctl user grant-role root root
etcdctl role add "crawlring-$cluster"
etcdctl role grant-permission "crawlring-$cluster" readwrite --prefix=true "/crawlring/$cluster/"
etcdctl user add crawler --interactive=false < "$crawler"
etcdctl user grant-role crawler "crawlring-$cluster"
etcdctl auth enable
