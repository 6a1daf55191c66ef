module corten.test/cluster/samples

go 1.26.0
