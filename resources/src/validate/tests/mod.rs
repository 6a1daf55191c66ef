mod cluster;
mod hostile;
mod kinds;
mod standalone;
mod virtual_machine;
