mod cluster;
mod hostile;
mod standalone;
mod virtual_machine;
